# What occamrl uses of mpl_toolkits.axes_grid1, which ships no types.
from matplotlib.axes import Axes

class AxesDivider:
    def append_axes(self, position: str, size: float, *, pad: float, sharex: Axes) -> Axes: ...

def make_axes_locatable(axes: Axes) -> AxesDivider: ...
