"""Curves of miss ratios, [(memory, miss ratio)] by memory: between two points by the logarithm of memory."""
import math


def memory_for(points, target):
    """The least memory with so low a miss ratio, between two points by its logarithm; None where they do not tell."""
    if points and points[0][1] == target:
        return points[0][0]
    for (less, high), (more, low) in zip(points, points[1:]):
        if low <= target < high:
            return less * (more / less) ** ((high - target) / (high - low))
    return None


def compared(ours, points, target):
    """Our memory over another system's for the same miss ratio; a bound where its curve ends before or begins after."""
    if not points:
        return "-"
    if theirs := memory_for(points, target):
        return f"{ours / theirs:.2f}"
    return f"< {ours / points[-1][0]:.2f}" if points[-1][1] > target else f"> {ours / points[0][0]:.2f}"


def beside_least(ours, curves, target):
    """Our memory over the least of the others, less 1; a lower bound where that one's curve begins below."""
    bounds = {memory_for(points, target) or points[0][0]: "" for points in curves if points[-1][1] <= target}
    bounds |= {points[0][0]: "> " for points in curves if points[0][1] < target}
    return f"{bounds[min(bounds)]}{ours / min(bounds) - 1:+.0%}" if bounds else "-"


def ratio_at(points, memory):
    """The miss ratio between two points, by the logarithm of memory."""
    for (less, high), (more, low) in zip(points, points[1:]):
        if less <= memory <= more:
            return high + (low - high) * math.log(memory / less) / math.log(more / less)
    return None
