"""Accessibility checks of a page: names, headings, landmarks, ids, contrast."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page

NAMED = {
    *("button", "link", "textbox", "searchbox", "combobox", "checkbox", "spinbutton", "radio", "image", "img", "table"),
    *("region", "meter", "progressbar", "heading", "columnheader", "rowheader", "article"),
}
"""Roles that are useless to a screen reader without a name."""

FAULTS = """() => {
    const found = [];
    const all = [...document.querySelectorAll('[id]')].map((e) => e.id);
    for (const id of new Set(all)) if (all.filter((i) => i === id).length > 1) found.push(`two elements are #${id}`);
    for (const attr of ['aria-labelledby', 'aria-describedby', 'aria-controls', 'for', 'form'])
        for (const e of document.querySelectorAll(`[${attr}]`))
            for (const id of e.getAttribute(attr).split(/\\s+/))
                if (!document.getElementById(id)) found.push(`${attr}=${id} leads nowhere`);
    let last = 0;
    for (const e of document.querySelectorAll('h1, h2, h3, h4, h5, h6')) {
        const level = Number(e.tagName[1]);
        if (level > last + 1) found.push(`${e.tagName} "${e.textContent.trim()}" after H${last}`);
        last = level;
    }
    const count = (what) => document.querySelectorAll(what).length;
    if (count('h1') !== 1) found.push(`${count('h1')} h1`);
    if (count('main') !== 1) found.push(`${count('main')} main`);
    if (document.documentElement.lang !== 'en' || !document.title) found.push('no language or no title');
    for (const e of document.querySelectorAll('th')) if (!e.scope) found.push(`no scope: ${e.textContent}`);
    for (const e of document.querySelectorAll('[tabindex]')) if (e.tabIndex > 0) found.push('an order of its own');
    return found;
}"""

FAINT = """() => {
    const parts = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
    const light = ([r, g, b]) => {
        const part = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
        return 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
    };
    const behind = (e) => {
        for (; e; e = e.parentElement) {
            const c = parts(getComputedStyle(e).backgroundColor);
            if (c.length === 3 || c[3] === 1) return c;
        }
        return [255, 255, 255];
    };
    const found = new Set();
    for (const e of document.querySelectorAll('body *')) {
        if (e.closest('svg, [hidden], .hush, option, :disabled') || !e.checkVisibility()) continue;
        if (![...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
        const style = getComputedStyle(e);
        const [a, b] = [light(parts(style.color)), light(behind(e))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        const big = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.7 && style.fontWeight >= 700);
        const what = `${e.tagName}.${e.className} ${e.textContent.trim().slice(0, 40)}`;
        if (ratio < (big ? 3 : 4.5)) found.add(`too faint, ${ratio.toFixed(2)}: ${what}`);
    }
    return [...found];
}"""

FOLDED = """() => {
    const folded = [...document.querySelectorAll('details:not([open]) > summary')].find((e) => e.checkVisibility());
    if (!folded) return null;
    folded.scrollIntoView({block: 'center', behavior: 'instant'});
    const box = folded.getBoundingClientRect();
    return {x: box.x + box.width / 2, y: box.y + box.height / 2};
}"""


def opened(page: Page) -> None:
    """Open everything that is folded, with the mouse. Playwright's own click takes four times as long."""
    for _ in range(100):
        if (place := page.evaluate(FOLDED)) is None:
            return
        page.mouse.click(place["x"], place["y"])
    raise AssertionError("something cannot be opened")


def tree(page: Page) -> list[dict[str, Any]]:
    """Return what Chromium reports to a screen reader: roles and names, in page order."""
    client = page.context.new_cdp_session(page)
    try:
        nodes = client.send("Accessibility.getFullAXTree")["nodes"]
    finally:
        client.detach()
    return [
        {"role": n["role"]["value"], "name": n.get("name", {}).get("value", ""), "id": n["nodeId"]}
        for n in nodes
        if not n["ignored"] and "role" in n
    ]


def names(page: Page, role: str) -> list[str]:
    return [node["name"] for node in tree(page) if node["role"] == role]


def faults(page: Page) -> list[str]:
    """Return the accessibility errors of the page in its current state."""
    wrong = list(page.evaluate(FAULTS)) + list(page.evaluate(FAINT))
    found = tree(page)
    wrong += [f"a {n['role']} without a name" for n in found if n["role"] in NAMED and not n["name"].strip()]
    roles = [n["role"] for n in found]
    wrong += [f"no {role}" for role in ("banner", "main") if role not in roles]
    around = [n["name"] for n in found if n["role"] == "navigation"]
    if len(set(around)) != len(around) or not all(around):
        wrong.append(f"navigations with equal or empty names: {around}")
    buttons = [n["name"] for n in found if n["role"] == "button"]
    twice = {name for name in buttons if buttons.count(name) > 1}
    wrong += [f"two buttons are named {name!r}" for name in sorted(twice)]
    return wrong


def wide(page: Page) -> int:
    """Return the width of the page in pixels. More than the window means horizontal scrolling."""
    return int(page.evaluate("() => document.documentElement.scrollWidth"))
