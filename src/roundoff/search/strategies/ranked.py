"""Strategies over the ranking of nodes: bisection, the greedy way, and the front of metric and cost."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from roundoff.core.plan import FLOAT, Recipe
from roundoff.messages.message import NOTHING
from roundoff.search.cost import FreeOption, without_options
from roundoff.search.problem import TuneProblem
from roundoff.search.result import Trial
from roundoff.search.strategies.strategy import Search, better

# Bisection over the ranking: how many of the leading nodes have to stay in float, in a logarithm of trials.


def bisect(problem: TuneProblem) -> Search:
    """Search for the fewest leading nodes in float that meet the goal, as vendors' tools do.

    All nodes in float are no quantized model, and are not tried. The answer is asked for once more when the last
    trial was not it.
    """
    plain = yield problem.base
    if plain.met:
        return
    nodes = problem.ranking(problem.base)
    outcomes: list[bool] = []
    answer: Recipe | None = None
    while (count := next_count(len(nodes), outcomes)) is not None and count < len(nodes):
        recipe = problem.raised(problem.base, nodes[:count], FLOAT)
        trial = yield recipe
        outcomes.append(trial.met)
        answer = recipe if trial.met else answer
    if answer is not None and not outcomes[-1]:
        yield answer


def next_count(nodes: int, outcomes: Sequence[bool]) -> int | None:
    """Bisection over a ranking: how many of the leading nodes to try next; None when it has ended.

    Assumes that a count which meets the goal is met by every larger one too. Who cannot rely on that verifies
    the answer.

    Args:
        nodes: How many there are.
        outcomes: Whether each count proposed so far met the goal, in the order of proposals.

    Returns:
        A count from 1 to `nodes`.

    Raises:
        ValueError: There are more outcomes than proposals.
    """
    first, last = 0, nodes - 1
    for met in outcomes:
        if first > last:
            raise ValueError(f"bisection over {nodes} nodes had ended before the last of {len(outcomes)} outcomes")
        middle = (first + last) // 2
        first, last = (first, middle - 1) if met else (middle + 1, last)
    return (first + last) // 2 + 1 if first <= last else None


# The default strategy: free options, then precision where it matters, then give back what costs without need.

# Taking free options, one after the other, as long as that helps.

_DROWNED_DB = 10.0
"""Outputs with less signal to noise are lost: a finer range or a moved mean gains a decibel or two, which is too
little, and is not looked at before what changes how channels share their scales."""


def climb(problem: TuneProblem, start: Trial, *, until_met: bool = True) -> Generator[Recipe, Trial, Trial]:
    """Try each option on top of those that helped, unless it only makes the outputs noisier.

    Of the options that are quickly taken the one comes first that takes most noise from the outputs: a metric that
    counts right answers on few samples is met by chance, too, and whatever comes first would be kept for that.
    Where noise has drowned the outputs, options come before them that share out scales anew, and no other model is
    built until these have failed.

    Args:
        problem: Has the options.
        start: What to improve.
        until_met: End when the goal is met.

    Returns:
        The best trial.
    """
    # Hill climbing by one option at a time. A trial costs an evaluation, so that the proxy on calibration samples
    # refuses first; it also keeps evaluation samples out of the choice of what is tried.
    best = start
    for quick, group in _groups(problem, best.recipe):
        for option in _sorted(problem, best.recipe, group) if quick else group:
            recipe = problem.with_option(best.recipe, option)
            if recipe == best.recipe or not problem.affordable(recipe):
                continue
            if not problem.worth_trying(recipe, best.recipe):
                continue
            trial = yield recipe
            if better(trial, best) or (trial.met and not best.met):
                best = trial
            if best.met and until_met:
                return best
    return best


def _groups(problem: TuneProblem, recipe: Recipe) -> Iterator[tuple[bool, list[FreeOption]]]:
    """Options as they are tried: one after the other, or, of those that are quickly taken, the best first."""
    options, first = problem.free_options(), list[FreeOption]()
    decibels = problem.proxy_db(recipe)
    if decibels is not None and decibels < _DROWNED_DB:
        for option in options:
            # Asked for one after the other: what an option costs is known when its model is made.
            if option.shares_scales and _is_free(problem, recipe, option):
                first.append(option)
                yield False, [option]
    rest = (option for option in options if option not in first)
    yield from ((quick, list(each)) for quick, each in groupby(rest, _is_quick))


def _is_free(problem: TuneProblem, recipe: Recipe, option: FreeOption) -> bool:
    """Whether the model costs no more with an option; one that adds operations waits until others have failed."""
    return problem.cost(problem.with_option(recipe, option)) <= problem.cost(recipe)


def _is_quick(option: FreeOption) -> bool:
    return option.quick


def _sorted(problem: TuneProblem, recipe: Recipe, options: Iterable[FreeOption]) -> Iterator[FreeOption]:
    """Options, the most promising first; as they come where nothing is known.

    What promises nothing alone may do so on top of others: a weight that is cut off more tightly moves the mean of
    a channel, which bias correction moves back. Calibration methods of all activations exclude each other, so that
    the most promising is enough.
    """
    every = list(options)
    changed = {option: problem.with_option(recipe, option) for option in every}
    usable = [option for option in every if changed[option] != recipe and problem.affordable(changed[option])]
    proxies = {option: problem.proxy_db(changed[option]) for option in usable}
    if problem.proxy_db(recipe) is None:
        yield from usable
        return
    # One that fails promises nothing; a trial says why, after those of the others.
    failing = [option for option in usable if proxies[option] is None]
    usable = [option for option in usable if option not in failing]
    usable.sort(key=lambda option: -(proxies[option] or 0.0))
    worthy = [
        option for option in usable if option.kind != "method" or problem.worth_trying(changed[option], recipe)
    ]
    methods = [option for option in worthy if option.kind == "method"]
    yield from (option for option in worthy if option not in methods[1:])
    yield from failing


# Leaving out of a recipe that meets the goal whatever costs something and is not needed.

# Of more nodes than this, single ones are not tried: groups of neighbours in the ranking are.
_MOST_SINGLE = 16
# Sums of costs in another order may differ in their last bits.
_SAME_COST = 1e-9


# A part of a transformer's stream is given back when outputs lose less than this without it: metrics of a task are
# met by chance on few samples, and a part is missed only together with others.
_SPARED_DB = 1.0
_FEWEST_GROUPS = 8


def prune(problem: TuneProblem, start: Trial, *, careful: bool = False) -> Generator[Recipe, Trial, Trial]:
    """Leave out options and nodes, and give others a cheaper precision, as long as the goal is met.

    It goes round until nothing changes: with fewer options a node may be needed that was not before. An option
    that costs nothing on the chip stays even where the goal is met without it: a goal is met on some samples, and
    what it gains is gained on others, too.

    Args:
        problem: Has the options.
        start: A trial that meets the goal.
        careful: Whether nodes are left out only where outputs hardly get noisier than with all of them, and in
            groups: what a kind of network needs is needed as a whole, and the rest of a goal is not spent on it.

    Returns:
        A trial that meets the goal; without any one of its parts that cost something it does not, as far as single
        parts were tried.
    """
    best = start
    # Each pass only takes away, and ends where nothing can be taken away: costs fall, so that it ends.
    while True:
        before = best.recipe
        best = yield from _fewer_options(problem, best)
        best = yield from _fewer_nodes(problem, best, whole=start.recipe if careful else None)
        best = yield from _lower_nodes(problem, best)
        if best.recipe == before or careful:
            return best


def _fewer_options(problem: TuneProblem, start: Trial) -> Generator[Recipe, Trial, Trial]:
    """Leave out options that cost something, or harm, one at a time, the one that takes most first."""
    best = start
    while True:
        for recipe in without_options(best.recipe, problem.base, problem.nodes):
            saves = _is_cheaper(recipe, best.recipe, problem)
            if not saves and not _may_harm(recipe, best.recipe, problem):
                continue
            trial = yield recipe
            if trial.met and (trial.cost < best.cost if saves else better(trial, best)):
                best = trial
                break
        else:
            return best


def _is_cheaper(recipe: Recipe, other: Recipe, problem: TuneProblem) -> bool:
    return problem.cost(recipe) < problem.cost(other) * (1 - _SAME_COST)


def _may_harm(left: Recipe, whole: Recipe, problem: TuneProblem) -> bool:
    """Whether a free option may do harm: outputs have less noise without it, or that is not known.

    The metric alone does not tell: on few samples it is better without a good option now and then.
    """
    without_it, with_it = problem.proxy_db(left), problem.proxy_db(whole)
    return without_it is None or with_it is None or without_it > with_it


def one_less(recipe: Recipe, problem: TuneProblem) -> list[Recipe]:
    """All recipes with one node less, or one option that costs something."""
    nodes = problem.raised_nodes(recipe)
    fewer = without_options(recipe, problem.base, problem.nodes)
    options = [each for each in fewer if _is_cheaper(each, recipe, problem)]
    return [*(_dropped(recipe, [node], problem) for node in nodes), *options]


def _dropped(recipe: Recipe, nodes: Sequence[str], problem: TuneProblem) -> Recipe:
    left = {node: had for node, had in problem.raised_nodes(recipe).items() if node not in nodes}
    return problem.with_nodes(recipe, left)


def _is_spared(problem: TuneProblem, left: Recipe, whole: Recipe) -> bool:
    """Whether outputs hardly get noisier with less; also where that is not known."""
    without_it, with_it = problem.proxy_db(left), problem.proxy_db(whole)
    return without_it is None or with_it is None or without_it >= with_it - _SPARED_DB


def _fewer_nodes(problem: TuneProblem, start: Trial, *, whole: Recipe | None) -> Generator[Recipe, Trial, Trial]:
    """Leave out groups of nodes, from the end of the ranking, in smaller and smaller groups.

    Args:
        problem: Has the nodes.
        start: A trial that meets the goal.
        whole: What outputs must hardly get noisier than; None where the goal alone decides.
    """
    best = start
    nodes = list(problem.raised_nodes(best.recipe))
    size = max(1, len(nodes) // 2)
    smallest = max(1, -(-len(nodes) // (_MOST_SINGLE if whole is None else _FEWEST_GROUPS)))
    while nodes:
        dropped = False
        for at in range(len(nodes) - size, -size, -size):
            recipe = _dropped(best.recipe, nodes[max(0, at) : at + size], problem)
            if whole is not None and not _is_spared(problem, recipe, whole):
                continue
            trial = yield recipe
            if trial.met and trial.cost <= best.cost:
                best, dropped = trial, True
        nodes = list(problem.raised_nodes(best.recipe))
        if size > smallest:
            size = max(smallest, size // 2)
        elif whole is not None or not dropped:
            # A whole round in the smallest groups, and every one of them is needed.
            break
    return best


def _lower_nodes(problem: TuneProblem, start: Trial) -> Generator[Recipe, Trial, Trial]:
    """Give nodes a cheaper precision, one at a time and the cheapest first."""
    best = start
    for node, precision in list(problem.raised_nodes(best.recipe).items())[:_MOST_SINGLE]:
        for cheaper in problem.precisions[: problem.precisions.index(precision)]:
            trial = yield problem.with_nodes(best.recipe, {**problem.raised_nodes(best.recipe), node: cheaper})
            if trial.met and trial.cost <= best.cost:
                best = trial
                break
    return best


def architecture(problem: TuneProblem, start: Trial) -> Generator[Recipe, Trial, Trial]:
    """What a kind of network is known to need, tried as a whole: its parts gain nothing one at a time."""
    best = start
    for change in (problem.with_wide_stream, problem.with_smooth_norms):
        recipe = None if best.met else change(best.recipe)
        if recipe is None or recipe == best.recipe or not problem.affordable(recipe):
            continue
        trial = yield recipe
        if trial.met or better(trial, best):
            best = trial
    return best


def greedy(problem: TuneProblem) -> Search:
    """Search for the cheapest recipe that meets the goal.

    1. The plain recipe; when it meets the goal that is all.
    2. Of a transformer, what its kind needs: the residual stream in more bits as a whole, then smoothing at norms.
    3. Free options on the chip, each kept if it helps.
    4. More bits, then float, for the nodes of the ranking that stand out, then for twice as many each time, then
       bisection between the last two.
    5. Of the cheapest recipe that meets the goal, whatever costs something and can be left out.
    """
    plain = yield problem.base
    if plain.met:
        return
    best = yield from architecture(problem, plain)
    careful = best.met
    if not best.met:
        best = yield from climb(problem, best)
    if not best.met:
        found = yield from _raise_nodes(problem, best)
        if found is None and best.recipe != problem.base:
            # What helped with everything in integers may stand in the way of float.
            found = yield from _raise_nodes(problem, plain)
        if found is None and FLOAT in problem.precisions:
            # The ranking leads astray: everything in float meets any goal, and what is not needed is given back.
            nodes = problem.ranking(best.recipe)
            found = _untried(problem, problem.raised(best.recipe, nodes, FLOAT))
        if found is None:
            return
        best = found
    yield from prune(problem, best, careful=careful)


def _raise_nodes(problem: TuneProblem, start: Trial) -> Generator[Recipe, Trial, Trial | None]:
    """The cheapest trial with the leading nodes raised that meets the goal; None when there is none."""
    nodes = problem.ranking(start.recipe)
    cheapest: Trial | None = None
    for precision in problem.precisions:
        limit = None if cheapest is None else cheapest.cost
        found = yield from _leading(problem, start.recipe, nodes, precision=precision, limit=limit)
        if found is not None and (cheapest is None or found.cost < cheapest.cost):
            cheapest = found
    return cheapest


def _leading(
    problem: TuneProblem, recipe: Recipe, nodes: Sequence[str], *, precision: str, limit: float | None
) -> Generator[Recipe, Trial, Trial | None]:
    """The trial with the fewest leading nodes raised that meets the goal, at less than a cost."""

    def raised(count: int) -> Recipe | None:
        candidate = problem.raised(recipe, nodes[:count], precision)
        cheap = limit is None or problem.cost(candidate) < limit
        return candidate if cheap and problem.affordable(candidate) else None

    failed, count, found = 0, min(problem.outstanding(recipe), len(nodes)), None
    while nodes and found is None:
        # All nodes in float are no quantized model: that it would meet the goal is no news.
        candidate = None if precision == FLOAT and count == len(nodes) else raised(count)
        if candidate is None:
            break
        trial = yield candidate
        if trial.met:
            found = trial
        elif count == len(nodes):
            return None
        else:
            failed, count = count, min(2 * count, len(nodes))
    # Between the last two counts: where the larger one is too costly, one between them may not be.
    outcomes: list[bool] = []
    while (step := next_count(count - failed - 1, outcomes)) is not None:
        candidate = raised(failed + step)
        if candidate is None:
            # As if it met the goal: fewer nodes are looked for.
            outcomes.append(True)
            continue
        trial = yield candidate
        outcomes.append(trial.met)
        found = trial if trial.met else found
    return found


def _untried(problem: TuneProblem, recipe: Recipe) -> Trial:
    """A recipe that is no quantized model and need not be tried."""
    return Trial(recipe, NOTHING, True, 0.0, 0.0, problem.cost(recipe), samples=0, whole=True)


# The front of metric and cost: what each step of cost brings.

# Trials beyond the free options.
_MOST_POINTS = 16


def pareto(problem: TuneProblem) -> Search:
    """Try free options, more and more nodes in more bits and in float, then close the largest gaps."""
    plain = yield problem.base
    best = yield from climb(problem, plain, until_met=False)
    nodes = problem.ranking(best.recipe)
    points: dict[tuple[str, int], Trial] = {(precision, 0): best for precision in problem.precisions}
    for precision, count in _first_points(problem, len(nodes)):
        recipe = problem.raised(best.recipe, nodes[:count], precision)
        if problem.affordable(recipe):
            points[precision, count] = yield recipe
    while len(points) < _MOST_POINTS + len(problem.precisions):
        gap = _largest_gap(points)
        if gap is None:
            return
        precision, count = gap
        points[gap] = yield problem.raised(best.recipe, nodes[:count], precision)


def _first_points(problem: TuneProblem, nodes: int) -> Iterator[tuple[str, int]]:
    """Powers of two of nodes in each precision, less than all of them in float."""
    for precision in problem.precisions:
        count = 1
        while count < nodes:
            yield precision, count
            count *= 4


def _largest_gap(points: dict[tuple[str, int], Trial]) -> tuple[str, int] | None:
    """Where between two neighbours of one precision the loss changes most; None when there is no room anywhere."""
    gaps = []
    for precision in dict.fromkeys(name for name, _ in points):
        counts = sorted(count for name, count in points if name == precision)
        for low, high in pairwise(counts):
            if high - low > 1:
                change = abs(points[precision, low].loss - points[precision, high].loss)
                gaps.append((change, precision, (low + high) // 2))
    if not gaps:
        return None
    _, precision, count = max(gaps, key=lambda gap: gap[0])
    return precision, count


def pareto_front(trials: list[Trial]) -> tuple[Trial, ...]:
    """The trials that none beats in loss and cost, cheapest first."""
    front: list[Trial] = []
    for trial in sorted(trials, key=lambda trial: (trial.cost, trial.loss, trial.number)):
        if not front or trial.loss < front[-1].loss:
            front.append(trial)
    return tuple(front)
