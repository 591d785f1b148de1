// Live updates of an open page. The server sends the changed regions, and htmx's morph swap keeps focus, scroll position,
// half-typed fields and opened details. htmx's own SSE extension is not used: it does not retry a failed first
// connection, and it cannot distinguish a lost connection from one without updates.
(() => {
    "use strict";
    const SILENT_MS = 25000; // the server sends a heartbeat every 10 s
    const FIRST_MS = 500, LONGEST_MS = 15000;

    // Details that the user opened stay open. Regions that the server marks as unchanged are not touched.
    htmx.registerExtension("aliquot", {
        htmx_before_morph_node: (old, detail) => !detail.newNode.hasAttribute?.("data-same"),
        htmx_before_morph_attr: (element, detail) =>
            !(detail.attrName === "open" && /^(DETAILS|DIALOG)$/.test(element.tagName)),
    });

    const put = (element, html) =>
        htmx.swap({ target: element, sourceElement: element, text: html, swap: "outerMorph ignoreTitle:true" });

    // Update "3 min ago" without the server: <time data-ago="SECONDS SINCE 1970">.
    const ages = () => {
        for (const element of document.querySelectorAll("time[data-ago]")) {
            const text = ago(Date.now() / 1000 - Number(element.dataset.ago));
            if (element.textContent !== text) element.textContent = text;
        }
    };
    const ago = (seconds) => {
        if (seconds < 10) return "just now";
        for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]])
            if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
        return `${Math.floor(seconds / 10) * 10} s ago`;
    };
    ages();
    setInterval(ages, 5000);

    const body = document.body;
    const state = document.getElementById("liveness");
    if (!body.dataset.live || !state) return;

    let source = null, watch = 0, retry = 0, tries = 0, heard = new Date(), over = false;

    const hear = () => {
        tries = 0;
        clearTimeout(watch);
        watch = setTimeout(lost, SILENT_MS);
    };

    const live = () => {
        heard = new Date();
        hear();
        if (!state.hidden) {
            state.hidden = true;
            state.textContent = "";
            body.classList.remove("stale");
        }
    };

    const say = (text) => {
        body.classList.add("stale");
        if (state.textContent !== text) state.textContent = text;
        state.hidden = false;
    };

    const close = () => {
        clearTimeout(watch);
        clearTimeout(retry);
        source?.close();
        source = null;
    };

    const lost = () => {
        if (over || document.hidden) return close();
        close();
        say(`Connection lost at ${heard.toLocaleTimeString([], { hour12: false })}. The page may be out of date. Reconnecting …`);
        if (tries > 0) ask();
        const wait = Math.min(LONGEST_MS, FIRST_MS * 2 ** tries++);
        retry = setTimeout(connect, wait * (0.7 + 0.6 * Math.random()));
    };

    // EventSource does not report why a stream was refused. The login page redirects only users who are logged in.
    const ask = async () => {
        try {
            const answer = await fetch("/login", { redirect: "manual", signal: AbortSignal.timeout(5000) });
            if (answer.ok && !over) finish("You are logged out.", "/login", "Log in again");
        } catch {
            // The server is not reachable: the next attempt is already scheduled.
        }
    };

    const finish = (text, href, link) => {
        over = true;
        close();
        say(`${text} `);
        const anchor = document.createElement("a");
        anchor.href = href;
        anchor.textContent = link;
        state.append(anchor);
    };

    const on = (name, act) => source.addEventListener(name, async (message) => {
        const data = JSON.parse(message.data);
        (name === "trouble" ? hear : live)(); // the error stays visible until another event arrives
        await act(data);
        if (data.at) body.dataset.at = data.at;
    });

    const connect = () => {
        close();
        const query = new URLSearchParams({ page: body.dataset.live, at: body.dataset.at });
        source = new EventSource(`/live?${query}`);
        source.onerror = lost;
        watch = setTimeout(lost, SILENT_MS);
        on("hello", () => {});
        on("beat", () => {});
        on("parts", async ({ parts }) => {
            for (const [id, html] of parts) {
                const element = document.getElementById(id);
                if (element) await put(element, html);
            }
            ages();
        });
        on("page", async ({ title, html }) => {
            await put(document.getElementById("main"), html);
            document.title = `${title} · Aliquot`;
            ages();
        });
        on("trouble", ({ sentence }) => say(`No live updates: ${sentence}. Retrying …`));
        on("ended", () => finish("You are logged out.", "/login", "Log in again"));
    };

    // A hidden page keeps no stream. It catches up when it is shown again.
    document.addEventListener("visibilitychange", () => {
        if (over) return;
        if (document.hidden) close();
        else if (!source) connect();
    });
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", (event) => { if (event.persisted && !over) connect(); });
    connect();
})();
