// Keeps an open page as the world is. The server sends the parts that changed; htmx's morph puts them in place, so that
// focus, scrolling, half-typed fields and opened details stay. htmx's own event-stream extension is not used: it does not
// try again when the first connection fails, and cannot tell a silent connection from a quiet world.
(() => {
    "use strict";
    const SILENT_MS = 25000; // the server gives a sign of life every 10 s
    const FIRST_MS = 500, LONGEST_MS = 15000;

    // What people opened stays open; a part that the server says is the same is not touched.
    htmx.registerExtension("aliquot", {
        htmx_before_morph_node: (old, detail) => !detail.newNode.hasAttribute?.("data-same"),
        htmx_before_morph_attr: (element, detail) =>
            !(detail.attrName === "open" && /^(DETAILS|DIALOG)$/.test(element.tagName)),
    });

    const put = (element, html) =>
        htmx.swap({ target: element, sourceElement: element, text: html, swap: "outerMorph ignoreTitle:true" });

    // "3 min ago" grows older without the server: <time data-ago="SECONDS SINCE 1970">.
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
        say(`Not live since ${heard.toLocaleTimeString([], { hour12: false })}: what you see may have changed. Trying again …`);
        if (tries > 0) ask();
        const wait = Math.min(LONGEST_MS, FIRST_MS * 2 ** tries++);
        retry = setTimeout(connect, wait * (0.7 + 0.6 * Math.random()));
    };

    // A stream does not tell why it was refused; the login page sends away only those who are logged in.
    const ask = async () => {
        try {
            const answer = await fetch("/login", { redirect: "manual", signal: AbortSignal.timeout(5000) });
            if (answer.ok && !over) finish("You are logged out.", "/login", "Log in again");
        } catch {
            // The server is away: the next try is under way.
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
        (name === "trouble" ? hear : live)(); // trouble stays told, once, until something else is heard
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
        on("trouble", ({ sentence }) => say(`Not live: ${sentence}. Trying again …`));
        on("ended", () => finish("You are logged out.", "/login", "Log in again"));
    };

    // A page that nobody looks at keeps no stream; it catches up when it is looked at again.
    document.addEventListener("visibilitychange", () => {
        if (over) return;
        if (document.hidden) close();
        else if (!source) connect();
    });
    window.addEventListener("pagehide", close);
    window.addEventListener("pageshow", (event) => { if (event.persisted && !over) connect(); });
    connect();
})();
