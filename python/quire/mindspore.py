"""Layers of MindSpore."""

import numpy as np

from . import _quire
from ._quire import Error

__all__ = ["MultiHeadAttention"]


def _type_name(value, name):
    """float32 or float16: a NumPy dtype, its name, or MindSpore's (whose str is "Float32")."""
    try:
        found = np.dtype(value).name
    except TypeError:
        found = str(value).lower()
    if found not in ("float32", "float16"):
        raise Error(f"{name} is {value!r}: must be float32 or float16")
    return found


def _threads(parallel_config):
    """A number of threads; of a configuration of MindSpore's the devices that it would use. None: all."""
    if parallel_config is None:
        return 0
    if hasattr(parallel_config, "data_parallel"):
        return int(parallel_config.data_parallel) * int(getattr(parallel_config, "model_parallel", 1))
    return parallel_config


def _flag(value, name):
    if not isinstance(value, (bool, np.bool_)):
        raise Error(f"{name} is {value!r}: must be True or False")
    return bool(value)


class Dense:
    """Weights of a dense layer. An array is changed by assigning another: `layer.dense1.weight = array`."""

    def __init__(self, name, owner, weight, bias):
        self._name, self._owner = name, owner
        self._arrays = {"weight": weight, "bias": bias}
        for array in self._arrays.values():
            array.flags.writeable = False

    def _set(self, name, value):
        kept, what = self._arrays[name], f"{self._name}.{name}"
        array = np.array(value)  # a copy: what the caller does to it later does not count
        if array.dtype != kept.dtype:
            raise Error(f"{what} has type {array.dtype}: must be param_init_type, {kept.dtype}")
        if array.shape != kept.shape:
            raise Error(f"{what} has shape {list(array.shape)}: must be {list(kept.shape)}")
        array.flags.writeable = False
        self._arrays[name] = array
        self._owner._forget()

    @property
    def weight(self):
        """Read-only array [hidden_size, hidden_size]."""
        return self._arrays["weight"]

    @weight.setter
    def weight(self, value):
        self._set("weight", value)

    @property
    def bias(self):
        """Read-only array [hidden_size]."""
        return self._arrays["bias"]

    @bias.setter
    def bias(self, value):
        self._set("bias", value)


class MultiHeadAttention:
    """mindspore.nn.transformer.MultiHeadAttention.

    Dropout(Concat(heads) W^O + b^O) with heads

        Dropout(softmax(q . k / sqrt(D) + (1 - attention_mask) * -10000)) v

    over queries, keys and values that are projected, with biases, from the inputs. B = batch_size,
    S = src_seq_length, T = tgt_seq_length, H = num_heads, D = hidden_size / num_heads.

    Args:
        batch_size, src_seq_length, tgt_seq_length, hidden_size, num_heads: sizes. T is S with use_past.
        hidden_dropout_rate, attention_dropout_rate: of the output and of the probabilities, 0 to less than 1.
            They count in training only.
        compute_dtype: "float16" or "float32" (or NumPy's or MindSpore's types of those names): what inputs,
            weights, queries, keys, values and results are rounded to. Sums are in float32 in either.
        softmax_compute_type: likewise; the softmax is computed in float32 in either.
        param_init_type: type of weights and biases.
        use_past: whether the layer is used for incremental prediction.
        parallel_config: most threads of the context that a call uses, or a configuration of MindSpore's,
            which has data_parallel * model_parallel of them; None: all.
        training: whether dropout drops. An attribute, too, and an argument of calls.
        seed: of the weights' initial values (normal with deviation 0.01; biases are 0) and of dropout.
        precision: "highest", "high" or "medium", of attention.
        context: a quire.Context; None: the default one.

    Attributes:
        dense1, dense2, dense3: of queries, keys and values, each with `weight` [out, in] and `bias`.
        projection: of the output, with `weight` [in, out] and `bias`.
        is_first_iteration: with use_past: True (at first) for a call with the whole input, False for one more
            token.
        training, seed, step: dropout's. Each call in training drops by seed and step, then adds 1 to step.
    """

    def __init__(
        self,
        batch_size,
        src_seq_length,
        tgt_seq_length,
        hidden_size,
        num_heads,
        hidden_dropout_rate=0.1,
        attention_dropout_rate=0.1,
        compute_dtype="float16",
        softmax_compute_type="float32",
        param_init_type="float32",
        use_past=False,
        parallel_config=None,
        *,
        training=False,
        seed=0,
        precision="highest",
        context=None,
    ):
        self._attributes = {
            "batch_size": batch_size,
            "src_seq_length": src_seq_length,
            "tgt_seq_length": tgt_seq_length,
            "hidden_size": hidden_size,
            "num_heads": num_heads,
            "hidden_dropout_rate": hidden_dropout_rate,
            "attention_dropout_rate": attention_dropout_rate,
            "compute_dtype": _type_name(compute_dtype, "compute_dtype"),
            "softmax_compute_type": _type_name(softmax_compute_type, "softmax_compute_type"),
            "param_init_type": _type_name(param_init_type, "param_init_type"),
            "use_past": _flag(use_past, "use_past"),
            "parallel_config": _threads(parallel_config),
            "precision": precision,
        }
        self._context = context
        self.is_first_iteration = True
        self.training = _flag(training, "training")
        self.seed, self.step = seed, 0
        size = hidden_size if isinstance(hidden_size, (int, np.integer)) and 0 < hidden_size <= 1 << 20 else 0
        rng = np.random.default_rng(abs(int(seed)))
        for name in ("dense1", "dense2", "dense3", "projection"):
            dtype = self._attributes["param_init_type"]
            weight = rng.normal(scale=0.01, size=(size, size)).astype(dtype)
            setattr(self, name, Dense(name, self, weight, np.zeros(size, dtype)))
        self._layer = self._packed()  # says what is wrong with the arguments

    def _packed(self):
        parameters = {
            f"{name}_{part}": getattr(getattr(self, name), part)
            for name in ("dense1", "dense2", "dense3", "projection")
            for part in ("weight", "bias")
        }
        return _quire.mindspore.Layer(self._context, **self._attributes, **parameters)

    def _forget(self):
        self._layer = None

    def set_train(self, mode=True):
        """Sets `training`; returns the layer."""
        self.training = _flag(mode, "mode")
        return self

    def add_flags_recursive(self, **flags):
        """Sets `is_first_iteration`, as the document has it done; returns the layer."""
        for name, value in flags.items():
            if name != "is_first_iteration":
                raise Error(f"{name} is no flag of this layer: only is_first_iteration is")
            self.is_first_iteration = _flag(value, name)
        return self

    def explain(self):
        """Target, kernels and how the dense products are made, one "key: value" a line."""
        return self._ready().explain()

    def _ready(self):
        if self._layer is None:
            self._layer = self._packed()
        return self._layer

    def __call__(
        self,
        query_tensor,
        key_tensor,
        value_tensor,
        attention_mask=None,
        key_past=None,
        value_past=None,
        batch_valid_length=None,
        *,
        training=None,
        present=True,
    ):
        """Runs the layer.

        Args:
            query_tensor: [B, S, hidden_size] or [B * S, hidden_size], float32 or float16.
            key_tensor, value_tensor: [B, T, hidden_size] or [B * T, hidden_size], float32 or float16.
            attention_mask: [B, S, T] or [B, H or 1, S, T]: 1 keeps a key, 0 adds -10000 to its score.
            key_past, value_past: float16 [B, H, D, T] and [B, H, T, D]; needed after the first iteration.
            batch_valid_length: int32 [B], with use_past. In the first iteration the presents are zero from
                there on; later (S and T of the inputs being 1, the mask [B, 1, T]) it is the new token's
                position.
            training: in place of the attribute.
            present: whether the presents are wanted.

        Returns:
            (output, (key_present, value_present)): output of query_tensor's shape and type, presents of
            compute_dtype and of the shapes of key_past and value_past; None unless wanted.

        Raises quire.Error, naming the argument. The GIL is released while it runs.
        """
        training = _flag(self.training if training is None else training, "training")
        result = self._ready()(
            query_tensor,
            key_tensor,
            value_tensor,
            attention_mask,
            key_past,
            value_past,
            batch_valid_length,
            is_first_iteration=_flag(self.is_first_iteration, "is_first_iteration"),
            training=training,
            seed=self.seed,
            step=self.step,
            present=present,
        )
        if training:
            self.step += 1
        return result
