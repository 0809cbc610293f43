"""Textual's own colours (input, toasts, palette, scrollbars), in step with ours."""

from __future__ import annotations

from textual.theme import BUILTIN_THEMES, Theme

from fabmon.tui.palette import Depth

_OURS = {
    # background, surface, panel, foreground, primary, accent, rule
    Depth.TRUECOLOR: (
        "#0f1419", "#151c23", "#1d2731", "#c3ccd4", "#3a88c4", "#ff9e2c", "#35414c",
    ),
    Depth.EIGHT_BIT: (
        "#121212", "#1c1c1c", "#303030", "#c6c6c6", "#0087d7", "#ffaf00", "#444444",
    ),
}  # fmt: skip


def theme(depth: Depth) -> Theme:
    """The theme of a colour depth; without colours of our own, the terminal's."""
    if depth not in _OURS:
        base = BUILTIN_THEMES["ansi-dark"]
        return Theme(
            name=f"fabmon-{depth}",
            primary="ansi_blue",
            accent="ansi_yellow",
            foreground="ansi_default",
            background="ansi_default",
            surface="ansi_default",
            panel="ansi_default",
            boost="ansi_default",
            variables=base.variables,
            ansi=True,
        )
    background, surface, panel, foreground, primary, accent, rule = _OURS[depth]
    return Theme(
        name=f"fabmon-{depth}",
        primary=primary,
        secondary=primary,
        accent=accent,
        warning=accent,
        error=accent,
        success=primary,
        foreground=foreground,
        background=background,
        surface=surface,
        panel=panel,
        dark=True,
        variables={
            "scrollbar": rule,
            "scrollbar-hover": primary,
            "scrollbar-active": primary,
            "scrollbar-background": background,
            "scrollbar-background-hover": background,
            "scrollbar-background-active": background,
            "scrollbar-corner-color": background,
        },
    )
