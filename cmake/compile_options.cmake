# How every target of this repository is compiled. No -march here: what needs more than baseline x86-64 is
# generated at run time, so that one binary runs anywhere.
function(quire_compile_options target)
    target_compile_features(${target} PUBLIC cxx_std_17)
    set_target_properties(${target} PROPERTIES
        CXX_EXTENSIONS OFF
        CXX_VISIBILITY_PRESET hidden
        C_VISIBILITY_PRESET hidden
        VISIBILITY_INLINES_HIDDEN ON)
    target_compile_options(${target} PRIVATE
        # Unique symbols pin a shared library: dlclose would not unload it, and two copies would share state.
        $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fno-gnu-unique>)
    if(QUIRE_WERROR)
        target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Werror)
    endif()
    if(QUIRE_SANITIZE)
        target_compile_options(${target} PRIVATE
            -fsanitize=${QUIRE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
            # Generated functions do not have clang's type signature in front of them.
            $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-fno-sanitize=function>)
        target_link_options(${target} PUBLIC -fsanitize=${QUIRE_SANITIZE})
    endif()
endfunction()
