"""Page tables of quire.transformers.PagedCache."""

import numpy as np

from ._quire import Error


class PageTable:
    """Which rows hold the tokens of which sequence. All sequences have one length; they may share pages.

    rows [B, MaxP]: the first row of each page of a sequence, quire's `cachestarts`.
    slots: rows that there are.
    """

    def __init__(self, page_size, num_pages=0):
        if page_size < 1:
            raise Error(f"page_size is {page_size}: must be at least 1")
        if num_pages < 0:
            raise Error(f"num_pages is {num_pages}: must be at least 0")
        self.page_size = page_size
        self.rows = np.zeros((0, 0), np.int64)
        self._users = np.zeros(num_pages, np.int64)  # sequences that hold a page

    @property
    def slots(self):
        return len(self._users) * self.page_size

    @property
    def used(self):
        """Pages in use."""
        return np.count_nonzero(self._users)

    def make_room(self, batch, begin, end):
        """Pages for tokens begin .. end of each of `batch` sequences; begin is where they end now.

        Returns (from, to, number): rows to be copied before anything is written, of pages that were shared.
        """
        if len(self.rows) == 0:
            self.rows = np.zeros((batch, 0), np.int64)
        if len(self.rows) != batch:
            raise Error(
                f"the batch has {batch} sequences: must be as many as the cache holds, {len(self.rows)}"
            )
        copies = []
        page, filled = divmod(begin, self.page_size)
        if filled and end > begin:
            for b in range(batch):
                shared = self.rows[b, page]
                if self._users[shared // self.page_size] > 1:
                    self._give_back([shared])
                    self.rows[b, page] = self._take(1)[0]
                    copies.append((int(shared), int(self.rows[b, page]), filled))
        missing = -(-end // self.page_size) - self.rows.shape[1]
        if missing > 0:
            fresh = self._take(batch * missing).reshape(batch, missing)
            self.rows = np.concatenate([self.rows, fresh], axis=1)
        return copies

    def cut(self, length):
        """Keeps the pages of the first `length` tokens."""
        pages = -(-length // self.page_size)
        self._give_back(self.rows[:, pages:].ravel())
        self.rows = self.rows[:, :pages].copy()

    def select(self, indices):
        """Sequence b becomes what sequence indices[b] was."""
        chosen = self.rows[np.asarray(indices, np.int64)]
        np.add.at(self._users, chosen.ravel() // self.page_size, 1)
        self._give_back(self.rows.ravel())
        self.rows = chosen

    def _take(self, number):
        free = np.flatnonzero(self._users == 0)
        if len(free) < number:
            more = max(number - len(free), len(self._users))
            self._users = np.concatenate([self._users, np.zeros(more, np.int64)])
            free = np.flatnonzero(self._users == 0)
        self._users[free[:number]] = 1
        return free[:number] * self.page_size

    def _give_back(self, rows):
        np.subtract.at(self._users, np.asarray(rows, np.int64) // self.page_size, 1)
