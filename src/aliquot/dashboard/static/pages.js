// Optional enhancements: pictures of fleet rows are fetched when they scroll into view and removed when they leave it,
// and filters apply on selection.
(() => {
    "use strict";
    const PAUSE_MS = 60; // rows that scroll past quickly are not requested
    const near = new Map(); // cells in view by their AbortController, null without a request
    const seen = new WeakSet();

    const fill = async (cell) => {
        const leave = new AbortController();
        near.set(cell, leave);
        try {
            await new Promise((done) => setTimeout(done, PAUSE_MS));
            if (leave.signal.aborted) return;
            const given = { headers: { accept: "text/html" }, signal: leave.signal };
            const answer = await fetch(cell.dataset.pictures, given);
            const html = answer.ok && !answer.redirected ? await answer.text() : "";
            if (leave.signal.aborted) return;
            cell.replaceChildren(document.createRange().createContextualFragment(html.trim()));
        } catch {
            // Scrolled out of view, or the server is not reachable: requested again when the row is visible again.
        }
        if (near.get(cell) === leave) near.set(cell, null);
    };

    const watcher = new IntersectionObserver((entries) => {
        for (const { target, isIntersecting } of entries) {
            if (isIntersecting) {
                fill(target);
            } else {
                near.get(target)?.abort();
                near.delete(target);
                target.replaceChildren();
            }
        }
    }, { rootMargin: "150px 0px" });

    let asked = 0;
    const look = () => {
        asked = 0;
        for (const cell of document.querySelectorAll("[data-pictures]")) {
            if (!seen.has(cell)) {
                seen.add(cell);
                watcher.observe(cell);
            } else if (near.get(cell) === null && !cell.firstElementChild) fill(cell);
        }
        for (const cell of near.keys()) if (!cell.isConnected) near.delete(cell);
    };

    const main = document.getElementById("main");
    look();
    if (document.querySelector(".fleet"))
        new MutationObserver(() => { asked ||= requestAnimationFrame(look); })
            .observe(main, { childList: true, subtree: true });

    // Update "idle for 3 h" without the server.
    const idle = () => {
        for (const element of document.querySelectorAll("time[data-idle]")) {
            const seconds = Date.now() / 1000 - Number(element.dataset.idle);
            const [size, unit] = [[86400, "days"], [3600, "h"], [60, "min"]].find(([s]) => seconds >= s) || [1, "s"];
            const count = Math.max(0, Math.floor(seconds / size));
            const text = `idle for ${count} ${count === 1 && unit === "days" ? "day" : unit}`;
            if (element.textContent !== text) element.textContent = text;
        }
    };
    setInterval(idle, 20000);

    document.addEventListener("change", (event) => {
        if (event.target.tagName === "SELECT") event.target.closest("form[data-auto]")?.requestSubmit();
    });
})();
