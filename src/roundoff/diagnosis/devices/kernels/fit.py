"""Which wrong kernel gives what a device wrote: every known one is tried on the device's own inputs."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from roundoff.core.quantizers import fake_quantize, representable_range
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.kernels import elementwise, layers, spatial
from roundoff.diagnosis.devices.kernels.kernel import KERNELS, DeviceKernel, KernelNode, WrongKernel, cut_kernel
from roundoff.diagnosis.devices.kernels.layers import ShortSum, short_sums
from roundoff.diagnosis.devices.kernels.results import ResultSample, fitted_results
from roundoff.diagnosis.devices.proof import MOST_LEFT, energy, recovered
from roundoff.diagnosis.devices.replay import DeviceReplay
from roundoff.diagnosis.devices.suspects import ONE_KERNEL, DeviceSuspect
from roundoff.diagnosis.registry import ENOUGH
from roundoff.measure.metrics import ratio_db
from roundoff.messages.message import Message, message

_TABLES = (elementwise, layers, spatial)

# Nodes of a span whose kernels are tried; of more, a dump should tell which. Of more than one kernel has, a way is
# believed only when it leaves no more than rounding does, in so many values.
_MOST_NODES = 12
_LEFT_OF_MANY, _FEWEST_OF_MANY = 4.0, 256
_LONGEST_S = 20.0
# A wrong kernel fits when it leaves this part of the error of the right one and no more than rounding may; or,
# however fine the device rounds, this much smaller part.
_LEFT, _LEFT_ALONE = 0.1, 0.01
# One is named alone when the next one leaves so many times as much; nearer than that, the simpler one is named.
_CLEARLY, _AS_GOOD = 2.0, 1.3
_SAME = 4.0
# Those that leave less than this part on the first sample are tried on the others, the best ones first.
_PROMISING, _MOST_PROMISING = 0.5, 6
_SUMS = ("Add", "Sub")
# Layers whose filters are told apart, up to so many.
_FILTERS, _MOST_FILTERS = ("Conv", "Gemm"), 1024
# What rounding on the way costs a layer leaves more decibels than this; less is something else.
_MILD_DB = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class KernelFit:
    """A wrong kernel that gives what the device wrote.

    Attributes:
        text: What it does.
        node: The node that does so; empty when it happens to the result.
        explained: What it gives, in the samples of the suspect.
        share: Share of the elements that it gives as the device has them, in samples it was not chosen by.
        right_share: The same of the right kernel.
        sqnr_db: Of the dump against it, in those samples.
        right_db: Of the dump against the right kernel.
        next_db: Of the dump against the best of the others that give something else; None without one.
        samples: How many samples those are.
    """

    text: Message
    node: str
    explained: tuple[Array, ...]
    share: float
    right_share: float
    sqnr_db: float
    right_db: float
    next_db: float | None
    samples: int


@dataclass(frozen=True, slots=True)
class KernelTrial:
    """How many wrong kernels were tried on a tensor, and the one that fits."""

    tried: int
    fit: KernelFit | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Guess:
    text: Message
    node: str
    compute: Callable[[Sequence[int]], list[Array] | None]


def try_kernels(case: DeviceReplay, suspect: DeviceSuspect) -> KernelTrial:
    """Try all known wrong kernels on the device's own inputs of a suspect; once for each tensor."""
    if suspect.tensor not in case.tensors or suspect.flow == "dump only":
        return KernelTrial(0)
    if suspect.tensor not in case.trials:
        case.trials[suspect.tensor] = _Trials(case, suspect).run()
    found: KernelTrial = case.trials[suspect.tensor]
    return found


def is_known_kernel(case: DeviceReplay, suspect: DeviceSuspect) -> bool:
    """Whether a node computed wrongly in a known way gives all of it: then no order, gain or width is to blame."""
    fit = try_kernels(case, suspect).fit
    return fit is not None and bool(fit.node)


class _Trials:
    def __init__(self, case: DeviceReplay, suspect: DeviceSuspect) -> None:
        self._case, self._suspect = case, suspect
        self._pairs = suspect.pairs
        count = len(self._pairs)
        # What is chosen or fitted on some samples is judged on the others; one sample has no others.
        self._chosen_by = tuple(range(max(1, count // 2)))
        self._judged_on = tuple(range(len(self._chosen_by), count)) or self._chosen_by
        wrong = [at for at, pair in enumerate(self._pairs) if pair.off.any()]
        if wrong and set(wrong).isdisjoint(self._judged_on):
            # Samples in which nothing is wrong say nothing: the last that is wrong judges, where there are two.
            self._chosen_by = tuple(at for at in self._chosen_by if len(wrong) < 2 or at != wrong[-1])
            self._judged_on = tuple(sorted({*self._judged_on, wrong[-1]}))
        self._until = time.monotonic() + _LONGEST_S
        self._feeds: list[Mapping[str, Array]] = [case.view(place) for place in suspect.places]

    def run(self) -> KernelTrial:
        if any(not np.isfinite(pair.exact).all() for pair in self._pairs):
            return KernelTrial(0)
        found: list[tuple[float, int, _Guess]] = []
        # Where most is wrong, ways are told apart best; a tensor that is old is right in the first sample.
        errors = {at: self._left([at], [self._pairs[at].exact]) for at in self._chosen_by}
        worst = max(errors, key=lambda at: errors[at])
        before, tried = errors[worst], 0
        for candidate in self._candidates():
            if time.monotonic() > self._until:
                break
            tried += 1
            made = candidate.compute([worst])
            if made is None:
                continue
            left = self._left([worst], made)
            if left < _PROMISING * before:
                found.append((left, tried, candidate))
        found.sort(key=lambda each: each[:2])
        return KernelTrial(tried, self._best([each[2] for each in found[:_MOST_PROMISING]]))

    def _best(self, candidates: Sequence[_Guess]) -> KernelFit | None:
        judged: list[tuple[float, list[Array], _Guess]] = []
        places = range(len(self._pairs))
        for candidate in candidates:
            made = candidate.compute(places)
            if made is not None:
                judged.append((self._left(self._judged_on, [made[at] for at in self._judged_on]), made, candidate))
        # A way that holds for the samples that decide alone, as where these are alike, is none.
        fitting = [each for each in judged if recovered(self._suspect, each[1]) >= ENOUGH]
        if not fitting:
            return None
        least = min(each[0] for each in fitting)
        # Candidates come in the order of their first sample; of those as good as the best, the first in the table.
        order = {id(each): place for place, each in enumerate(candidates)}
        left, made, best = min(
            (each for each in fitting if each[0] <= max(_AS_GOOD * least, self._noise())),
            key=lambda each: order[id(each[2])],
        )
        before = self._left(self._judged_on, [self._pairs[at].exact for at in self._judged_on])
        fits = left <= _LEFT * before and left <= MOST_LEFT * self._noise()
        if not fits and left > _LEFT_ALONE * before:
            return None
        if best.node and len(self._case.spans[self._suspect.tensor].nodes) > ONE_KERNEL:
            size = sum(self._pairs[at].found.size for at in self._judged_on)
            if left > _LEFT_OF_MANY * self._noise() or size < _FEWEST_OF_MANY:
                return None
        # What differs from the best one by no more than that leaves, or rounding does, is the same kernel in
        # another form: neither a rival nor the next best.
        same = _SAME * max(left, self._noise())
        others = [each for each in judged if each[2] is not best and self._differ(each[1], made) > same]
        rivals = [each for each in others if each[0] < _CLEARLY * left and any(each is one for one in fitting)]
        text = best.text
        if rivals:
            text = message("diagnosis.way_or", one=text, other=min(rivals, key=lambda each: each[0])[2].text)
        signal = sum(float(np.square(self._pairs[at].found.astype(np.float64)).sum()) for at in self._judged_on)
        following = min((each[0] for each in others), default=None)
        return KernelFit(
            text,
            best.node,
            tuple(made),
            self._share([made[at] for at in self._judged_on]),
            self._share([self._pairs[at].exact for at in self._judged_on]),
            ratio_db(signal, left),
            ratio_db(signal, before),
            None if following is None else ratio_db(signal, following),
            len(self._judged_on),
        )

    def _noise(self) -> float:
        """Energy of what is expected to differ anyway, in the samples that decide."""
        floor = self._suspect.floor**2
        return floor * sum(self._pairs[at].expected.noise * self._pairs[at].found.size for at in self._judged_on)

    def _left(self, places: Sequence[int], made: Sequence[Array]) -> float:
        total = 0.0
        for at, values in zip(places, made, strict=True):
            found = self._pairs[at].found
            largest = float(np.abs(found[np.isfinite(found)]).max(initial=0.0))
            total += energy(found, values, largest)
        return total

    def _differ(self, one: Sequence[Array], other: Sequence[Array]) -> float:
        return sum(float(np.square(one[at].astype(np.float64) - other[at]).sum()) for at in self._judged_on)

    def _share(self, made: Sequence[Array]) -> float:
        same = size = 0
        for at, values in zip(self._judged_on, made, strict=True):
            pair = self._pairs[at]
            near = np.abs(pair.found - values) <= self._suspect.floor * pair.expected.tolerance
            same, size = same + int(np.count_nonzero(near)), size + near.size
        return same / size if size else 0.0

    def _stored(self, values: Array) -> Array:
        """A result as the device would hold it."""
        quantizer = self._case.golden.coded.get(self._suspect.tensor)
        if quantizer is not None:
            return fake_quantize(values.astype(np.float32), quantizer.params, quantizer.spec)
        if not self._case.quantizers and self._suspect.tensor in self._case.numbers.limits:
            return np.clip(values, *self._case.numbers.limits[self._suspect.tensor])
        return values

    def _candidates(self) -> Iterator[_Guess]:
        kernel = self._kernel()
        right = None if kernel is None else self._made(kernel, range(len(self._pairs)))
        if kernel is None or right is None or not self._is_right(right):
            right = [pair.free for pair in self._pairs]
        else:
            yield from self._edited(kernel)
        yield from self._spoilt(right)

    def _kernel(self) -> DeviceKernel | None:
        span = self._case.spans[self._suspect.tensor]
        if len(span.nodes) > _MOST_NODES:
            return None
        feed = self._feeds[0]
        return cut_kernel(
            self._case.model,
            self._suspect.tensor,
            nodes=span.nodes,
            known=lambda name: name in feed and name in span.reads,
            quantizers=self._case.quantizers,
        )

    def _made(self, kernel: DeviceKernel, places: Sequence[int]) -> list[Array] | None:
        """What a kernel computes, before it is stored; None where it cannot, or has another shape."""
        computed = kernel.run([self._feeds[at] for at in places])
        if computed is None:
            return None
        values = [each[kernel.tensor] for each in computed]
        shapes = [self._pairs[at].found.shape for at in places]
        return values if [each.shape for each in values] == shapes else None

    def _is_right(self, made: Sequence[Array]) -> bool:
        """Whether the kernel as it is gives what the reference does: else changes of it say nothing."""
        off = wrong = 0.0
        for pair, values in zip(self._pairs, made, strict=True):
            off += float(np.square(self._stored(values).astype(np.float64) - pair.exact).sum())
            wrong += float(np.square(pair.found.astype(np.float64) - pair.exact).sum())
        return off <= _LEFT * wrong

    def _edited(self, kernel: DeviceKernel) -> Iterator[_Guess]:
        names = [name for node in kernel.nodes for name in node.output if name]
        inside = kernel.run(self._feeds[:1], tensors=names)
        if inside is None:
            return
        values = {**{name: np.asarray(self._feeds[0][name]) for name in kernel.reads}, **inside[0]}
        lowest = {}
        for name, quantizer in self._case.golden.coded.items():
            lowest[name] = float(representable_range(quantizer.params, quantizer.spec)[0].min())
        # What goes wrong is most often the last step of a kernel, or its layer.
        for node in reversed(kernel.nodes):
            at = KernelNode(kernel, node, values, lowest)
            for ways in (*KERNELS["*"], *KERNELS.get(node.op_type, ())):
                for text, changed in ways(at):
                    yield self._edit(WrongKernel(text, changed, node.name))
            yield from self._other_filters(at)
            yield from self._short(at)

    def _other_filters(self, at: KernelNode) -> Iterator[_Guess]:
        """Some channels of a layer have the weights of others, with their own bias; which ones is fitted."""
        weight, bias = at.constant(1), at.constant(2)
        tail = self._tail(at)
        if weight is None or at.op not in _FILTERS or tail is None or not 2 <= len(weight) <= _MOST_FILTERS:
            return
        axis = 0 if at.op == "Conv" or at.attributes.get("transB") else weight.ndim - 1
        count = weight.shape[axis]
        name = at.node.output[0]
        bare = at.kernel if bias is None else at.with_input(2, np.zeros_like(bias))
        sums = bare.run([self._feeds[place] for place in self._chosen_by], tensors=[name])
        if sums is None or any(each[name].ndim < 2 or each[name].shape[1] != count for each in sums):
            return
        x, y = (
            np.concatenate([np.moveaxis(each, 1, 0).reshape(count, -1) for each in side], axis=1).astype(
                np.float64
            )
            for side in ([each[name] for each in sums], [self._pairs[place].found for place in self._chosen_by])
        )
        # Behind an activation only what it leaves alone can be told.
        kept = (y > y.min()) & (y < y.max()) if tail else np.ones(y.shape, bool)
        wanted = (y - (0 if bias is None else bias.reshape(-1, 1))) * kept
        distance = np.square(wanted).sum(1)[:, None] - 2 * wanted @ x.T + kept @ np.square(x).T
        own = np.arange(count)
        order = np.where(distance.min(axis=1) < _PROMISING * distance[own, own], np.argmin(distance, axis=1), own)
        wrong = np.flatnonzero(order != own)
        if wrong.size:
            first = int(wrong[0])
            text = message(
                "diagnosis.way_other_filters",
                op=at.op,
                count=int(wrong.size),
                all=count,
                first=first,
                other=int(order[first]),
            )
            yield self._edit(WrongKernel(text, at.with_input(1, np.take(weight, order, axis)), at.name))

    def _short(self, at: KernelNode) -> Iterator[_Guess]:
        """Sums or operands with fewer digits, where a device computes in float and is not grossly wrong."""
        if self._case.quantizers or self._case.numbers.kind == "integer" or self._suspect.error.sqnr_db < _MILD_DB:
            return
        for text, layer in short_sums(at):
            yield _Guess(text, at.name, partial(self._recomputed, at, layer))

    def _recomputed(self, at: KernelNode, layer: ShortSum, places: Sequence[int]) -> list[Array] | None:
        """What becomes of a kernel one of whose layers is computed in another way."""
        kernel, feeds, name = at.kernel, [self._feeds[place] for place in places], at.node.output[0]
        inside = at.inputs[0] not in kernel.reads
        read = kernel.run(feeds, tensors=at.inputs[:1]) if inside else [dict(each) for each in feeds]
        weight = at.constant(1)
        if read is None or weight is None:
            return None
        made = [layer(np.asarray(each[at.inputs[0]]), weight, at.constant(2)) for each in read]
        if name != kernel.tensor:
            nodes = tuple(node for node in kernel.nodes if node.name != at.name)
            rest = replace(kernel, nodes=nodes, reads=(*kernel.reads, name))
            given = [
                {**{key: feed[key] for key in kernel.reads}, name: values}
                for feed, values in zip(feeds, made, strict=True)
            ]
            computed = rest.run(given)
            if computed is None:
                return None
            made = [each[kernel.tensor] for each in computed]
        return [self._stored(each) for each in made]

    def _tail(self, at: KernelNode) -> tuple[str, ...] | None:
        """Operations behind a node; None when they are more than activations that leave values between limits."""
        tensor, found = at.node.output[0], []
        while tensor != at.kernel.tensor:
            readers = [node for node in at.kernel.nodes if tensor in node.input]
            if len(readers) != 1 or readers[0].op_type not in ("Relu", "Clip"):
                return None
            found.append(readers[0].op_type)
            tensor = readers[0].output[0]
        return tuple(found)

    def _edit(self, wrong: WrongKernel) -> _Guess:
        def compute(places: Sequence[int]) -> list[Array] | None:
            made = self._made(wrong.kernel, places)
            return None if made is None else [self._stored(each) for each in made]

        return _Guess(wrong.text, wrong.node, compute)

    def _spoilt(self, right: Sequence[Array]) -> Iterator[_Guess]:
        samples = [self._sample(at, values) for at, values in enumerate(right)]
        for text, result in fitted_results([samples[at] for at in self._chosen_by]):
            yield _Guess(text, "", self._result(samples, result))

    def _result(
        self, samples: Sequence[ResultSample], result: Callable[[ResultSample], Array]
    ) -> Callable[[Sequence[int]], list[Array] | None]:
        return lambda places: [self._stored(result(samples[at])) for at in places]

    def _sample(self, at: int, right: Array) -> ResultSample:
        case, tensor, place = self._case, self._suspect.tensor, self._suspect.places[at]
        before: tuple[Array, ...] = ()
        if place > 0:
            before = case.readout.read(tensor, place - 1), case.golden.compute(tensor, case.view(place - 1))
        tolerance = self._suspect.floor * self._pairs[at].expected.tolerance
        return ResultSample(self._pairs[at].found, right, tolerance, before, self._operands(at))

    def _operands(self, at: int) -> tuple[Array, ...]:
        """What the last node reads, where it adds and was fed what is known."""
        nodes = self._case.spans[self._suspect.tensor].nodes
        last = next(each for each in self._case.model.proto.graph.node if each.name == nodes[0])
        feed = self._feeds[at]
        known = last.op_type in _SUMS and all(name in feed for name in last.input)
        return tuple(np.asarray(feed[name]) for name in last.input) if known else ()
