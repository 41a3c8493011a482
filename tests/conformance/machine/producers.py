"""Publishing to the store and to the model, and comparing what became of each draft."""

import copy

from penstock.errors import PenstockError
from penstock.model.message import Draft
from penstock.model.store_types import Published
from tests.conformance.machine.world import World


class Producers(World):
    def publish(self, draft: Draft) -> None:
        answer = self.attempt(self.broker.publish(draft))
        if isinstance(answer, PenstockError):
            answer = Published(0, code=answer.code)
        self.follow_publish(draft, answer)

    def publish_many(self, drafts: list[Draft], *, atomic: bool) -> None:
        refusal = self.first_refusal(drafts) if atomic else None
        answers = self.attempt(self.broker.publish_many(drafts, atomic=atomic))
        if isinstance(answers, PenstockError):
            assert answers.code == refusal
            return
        assert refusal is None
        for draft, answer in zip(drafts, answers, strict=True):
            self.follow_publish(draft, answer)

    def follow_publish(self, draft: Draft, answer: Published) -> None:
        """The model judges the draft as the store did, and takes it in under the same id."""
        barred = self.model.barred(draft)
        if barred is not None:
            assert (answer.id, answer.code) == (0, barred)
            return
        verdict = self.model.judge(draft)
        assert answer.code == verdict.code
        if verdict.code is None and verdict.duplicate_of is None:
            assert not answer.duplicate
            self.check_new(draft, answer.id)
            self.model.enter(draft, answer.id)
        else:
            expected = (verdict.duplicate_of or 0, verdict.code is None)
            assert (answer.id, answer.duplicate) == expected

    def check_new(self, draft: Draft, id: int) -> None:
        older = [item.id for item in self.model.items.values() if item.queue.name == draft.queue]
        assert id > max(older, default=0), f"id {id} after {max(older, default=0)}"

    def first_refusal(self, drafts: list[Draft]) -> str | None:
        """The code an atomic batch is refused with: the broker looks first, then the store."""
        barred = [code for draft in drafts if (code := self.model.barred(draft))]
        if barred:
            return barred[0]
        trial = copy.deepcopy(self.model)
        for number, draft in enumerate(drafts):
            verdict = trial.judge(draft)
            if verdict.code is not None:
                return verdict.code
            if verdict.duplicate_of is None:
                trial.enter(draft, 2**60 + number)
        return None
