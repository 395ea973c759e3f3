// The page works without this. With it, marked parts follow the store live, text can be copied, a theme is remembered.
"use strict";

const root = document.documentElement;
const remembered = localStorage.getItem("dibs-theme");
if (remembered) root.dataset.theme = remembered;

// --- themes ---

function toggleTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("dibs-theme", root.dataset.theme);
}

// --- copying ---

async function copy(button) {
  const text = button.parentElement.querySelector("pre, code").textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    const range = document.createRange();
    range.selectNodeContents(button.parentElement.querySelector("pre, code"));
    getSelection().removeAllRanges();
    getSelection().addRange(range);
    button.textContent = "selected";
  }
  setTimeout(() => (button.textContent = "copy"), 1500);
}

document.addEventListener("click", (event) => {
  const target = event.target.closest("[data-action]");
  if (!target) return;
  if (target.dataset.action === "theme") toggleTheme();
  if (target.dataset.action === "copy") copy(target);
  if (target.dataset.action === "all") {
    for (const box of document.querySelectorAll('input[name="id"]')) box.checked = target.checked;
  }
});

// --- live parts: the server says that something changed, the page asks for itself again and takes what is marked ---

const live = document.querySelector(".live");
let asking = false;
let again = false;

function busy() {
  const typing = document.activeElement?.matches("select, textarea, input:not([type=checkbox], [type=radio])");
  return typing || document.querySelector('input[name="id"]:checked') || String(getSelection());
}

async function refresh() {
  if (asking) {
    again = true;
    return;
  }
  if (document.hidden || busy()) return;
  asking = true;
  try {
    const answer = await fetch(location.href, { headers: { "X-Dibs-Live": "1" } });
    if (answer.ok && !answer.redirected) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const parts = busy() ? [] : document.querySelectorAll("[data-live]"); // somebody may have begun meanwhile
      for (const old of parts) {
        const fresh = page.getElementById(old.id);
        if (!fresh || fresh.innerHTML === old.innerHTML) continue;
        const open = new Set([...old.querySelectorAll("details[open][id]")].map((each) => each.id));
        old.innerHTML = fresh.innerHTML;
        for (const each of old.querySelectorAll("details[id]")) each.open = each.open || open.has(each.id);
      }
    }
  } catch {
    // The connection is gone; the event source says so.
  } finally {
    asking = false;
    if (again) {
      again = false;
      setTimeout(refresh, 500);
    }
  }
}

if (live && document.querySelector("[data-live]")) {
  const source = new EventSource(live.dataset.events);
  source.addEventListener("open", () => {
    live.dataset.on = "yes";
    live.textContent = "live";
  });
  source.addEventListener("error", () => {
    live.dataset.on = "no";
    live.textContent = "not connected";
  });
  for (const name of ["counts", "workers", "ended", "batch", "job", "flow"]) source.addEventListener(name, refresh);
  document.addEventListener("visibilitychange", refresh);
}
