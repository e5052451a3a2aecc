// Fetches the page again every few seconds and puts its parts in place of those that changed.
"use strict";
(() => {
  const lost = document.getElementById("lost");
  const spoken = document.getElementById("spoken");
  const parts = (root) => [...root.querySelectorAll("[data-live]")];
  const shown = new Map(parts(document).map((part) => [part.id, part.outerHTML]));
  const period = () => 1000 * document.body.dataset.period;
  let since = null;

  function keepOpen(part, fresh) {
    for (const details of part.querySelectorAll("details")) {
      const twin = fresh.querySelector("#" + CSS.escape(details.id));
      if (twin && details.dataset.touched) {
        twin.open = details.open;
        twin.dataset.touched = "yes";
      }
    }
  }

  function put(part, fresh, html) {
    const focused = part.contains(document.activeElement) ? document.activeElement.id : "";
    keepOpen(part, fresh);
    part.replaceWith(fresh);
    shown.set(fresh.id, html);
    if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  }

  function show(page) {
    const fresh = parts(page);
    const same = fresh.length === shown.size && fresh.every((part) => shown.has(part.id));
    if (!same) {
      shown.clear();
      for (const part of fresh) shown.set(part.id, part.outerHTML);
      document.querySelector("main").replaceWith(page.querySelector("main"));
    } else {
      for (const part of fresh) {
        const html = part.outerHTML;
        if (html !== shown.get(part.id)) put(document.getElementById(part.id), part, html);
      }
    }
    document.title = page.title;
    document.body.dataset.period = page.body.dataset.period;
    document.querySelector("link[rel=icon]").href = page.querySelector("link[rel=icon]").href;
    const words = page.getElementById("spoken").textContent;
    if (spoken.textContent !== words) spoken.textContent = words;
  }

  function reading() {
    const selection = getSelection();
    return selection && !selection.isCollapsed && document.querySelector("main").contains(selection.anchorNode);
  }

  async function update() {
    if (document.hidden || reading()) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(5000) });
      if (!answer.ok) throw new Error("HTTP " + answer.status);
      show(new DOMParser().parseFromString(await answer.text(), "text/html"));
      since = null;
      lost.hidden = true;
    } catch {
      since ??= new Date();
      lost.textContent = "No answer since " + since.toLocaleTimeString() + ": what is shown here is old.";
      lost.hidden = false;
    }
    document.body.classList.toggle("old", since !== null);
  }

  // Only what a person opened or closed by hand stays so; the rest follows the state of its engine.
  document.addEventListener("click", (event) => {
    const summary = event.target.closest?.("summary");
    if (summary) summary.parentElement.dataset.touched = "yes";
    const link = event.target.closest?.(".rows a");
    const details = link && document.querySelector(link.getAttribute("href") + " details");
    if (details) {
      details.open = true;
      details.dataset.touched = "yes";
    }
  });

  async function run() {
    await update();
    setTimeout(run, period());
  }
  setTimeout(run, period());
  document.addEventListener("visibilitychange", update);
})();
