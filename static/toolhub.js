// What pages do beyond links and forms. Everything here is a convenience: each page works without it.
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const kept = window.toolhubKept;
  document.documentElement.classList.add("has-script");

  // The strip of tabs shows the one that is open, where it is longer than the window is wide.
  $(".page-tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // -- Theme, keys ----------------------------------------------------------------------------------------------
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-theme-toggle]")) window.toolhubTheme.toggle();
    if (event.target.closest("[data-show-keys]")) $("#keys").showModal();
    if (event.target.closest("[data-close-dialog]")) event.target.closest("dialog").close();
    for (const menu of $$("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
    const dismiss = event.target.closest("[data-dismiss]");
    if (dismiss) dismiss.closest(".notice, .toast-card").remove();
  });

  // -- Find: a box with a list below it ---------------------------------------------------------------------------
  const box = $("[data-search]");
  const list = $("#found");
  const chosen = () => $("[aria-selected=true]", list);
  const choose = (option) => {
    chosen()?.setAttribute("aria-selected", "false");
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    box.setAttribute("aria-activedescendant", option?.id ?? "");
  };
  const showFound = (shown) => {
    list.hidden = !shown;
    box.setAttribute("aria-expanded", String(shown));
    choose(shown ? $("[role=option]", list) : null);
  };
  if (box) {
    list.addEventListener("htmx:afterSwap", () => showFound(box.value.trim() !== "" && list.children.length > 0));
    box.addEventListener("keydown", (event) => {
      if (list.hidden) return;
      const options = $$("[role=option]", list);
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        choose(options[(options.indexOf(chosen()) + step + options.length) % options.length]);
      } else if (kept.isEnter(event) && chosen()) {
        event.preventDefault();
        chosen().click();
      } else if (event.key === "Escape") {
        event.stopPropagation();
        showFound(false);
      }
    });
    document.addEventListener("click", (event) => { if (!event.target.closest(".top-search")) showFound(false); });
    box.addEventListener("focus", () => { if (box.value.trim() && list.children.length) showFound(true); });
  }

  const isTyping = (element) => element.matches("input, textarea, select, [contenteditable]");

  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      if (isTyping(event.target)) event.target.blur();
      for (const menu of $$("details.menu[open]")) { menu.open = false; $("summary", menu).focus(); }
      $$(".toast-card").forEach((toast) => toast.remove());
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (event.key === "/") {
      const search = $("[data-search]");
      if (search) { event.preventDefault(); search.focus(); search.select(); }
    } else if (event.key === "?") {
      $("#keys")?.showModal();
    } else if (event.key === "m") {
      const composer = $("#composer textarea");
      if (composer) { event.preventDefault(); composer.focus(); }
    }
  });

  // -- Toasts ---------------------------------------------------------------------------------------------------
  const toast = (text, retry) => {
    const card = $("#toast-template").content.firstElementChild.cloneNode(true);
    $("[data-text]", card).textContent = text;
    const button = $("[data-retry]", card);
    if (retry) button.addEventListener("click", () => { card.remove(); retry(); });
    else button.remove();
    $("#toasts").append(card);
    if (!retry) setTimeout(() => card.remove(), 6000);
  };

  const again = (detail) => () => {
    const config = detail.requestConfig;
    if (!config) { location.reload(); return; }
    htmx.ajax(config.verb.toUpperCase(), config.path, {
      source: config.elt, target: config.target, values: config.parameters, swap: config.elt.getAttribute("hx-swap") || undefined,
    });
  };
  const SENTENCES = {
    403: "You have no access to this.",
    404: "This is not there any more.",
    413: "This is more than the server takes. It was not sent.",
    429: "Too many requests. Wait a moment.",
  };
  document.addEventListener("htmx:responseError", (event) => {
    toast(SENTENCES[event.detail.xhr.status] || "The server could not do this.", again(event.detail));
  });
  document.addEventListener("htmx:sendError", (event) => toast("The server cannot be reached.", again(event.detail)));
  document.addEventListener("htmx:timeout", (event) => toast("The server took too long.", again(event.detail)));

  // -- Running clocks: seconds since a step began, as the server saw it ---------------------------------------------
  const clocks = new WeakMap();
  const asSeconds = (value) => {
    if (value < 10) return `${value.toFixed(1)} s`;
    const whole = Math.round(value);
    if (whole < 60) return `${whole} s`;
    return `${Math.floor(whole / 60)} min ${whole % 60} s`.replace(/ 0 s$/, "");
  };
  const tick = () => {
    for (const clock of $$("[data-elapsed]")) {
      if (!clocks.has(clock)) clocks.set(clock, performance.now() - 1000 * parseFloat(clock.dataset.elapsed));
      clock.textContent = asSeconds((performance.now() - clocks.get(clock)) / 1000);
    }
  };
  setInterval(tick, 200);

  // -- Chat -----------------------------------------------------------------------------------------------------
  const turns = $("#turns");
  if (turns) {
    const page = document.scrollingElement;
    const end = $("#end");
    // The page follows what is written until the reader scrolls up or unfolds something, and again from the moment that he
    // is back at the end. Only a scroll upwards is the reader's: text that comes moves the end away as well, and no scroll
    // event says why.
    let follows = Boolean(turns.dataset.atEnd) && !location.hash;
    let top = page.scrollTop;
    const distance = () => (end ? end.getBoundingClientRect().bottom - innerHeight : 0);
    const follow = () => {
      if (!follows || !end || distance() <= 0) return;
      page.scrollBy({ top: Math.ceil(distance()), behavior: "instant" });  // a gliding one would never arrive
      top = page.scrollTop;
    };
    addEventListener("scroll", () => {
      if (distance() < 80) follows = true;
      else if (page.scrollTop < top) follows = false;
      top = page.scrollTop;
    }, { passive: true });
    new ResizeObserver(follow).observe(turns);
    addEventListener("resize", follow);
    if (follows) {
      history.scrollRestoration = "manual";
      follow();
      requestAnimationFrame(follow);
      addEventListener("load", follow);
    } else if (location.hash) {
      const place = document.getElementById(location.hash.slice(1));
      for (let fold = place?.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
      $("article", place || undefined)?.scrollIntoView();
    }

    // How high the composer is: the state of the running turn stays above it.
    const composer = new ResizeObserver(([entry]) => {
      turns.style.setProperty("--composer", `${Math.ceil(entry.borderBoxSize[0].blockSize)}px`);
      follow();
    });
    const measure = () => {
      composer.disconnect();
      if ($("#composer")) composer.observe($("#composer"));
      else turns.style.setProperty("--composer", "0px");
    };
    measure();

    // Where no stream can be had (there are limits), the turn is asked for now and then instead.
    document.addEventListener("htmx:sseError", (event) => {
      const turn = event.target;
      if (event.detail.source?.readyState === EventSource.CLOSED && turn.dataset.poll) {
        htmx.ajax("GET", turn.dataset.poll, { target: turn, swap: "outerHTML" });
      }
    });

    // Turns that came over REST or from another tab, and what the service said: asked for every few seconds while somebody
    // is here, more seldom else, and not at all by a page that nobody sees.
    const OFTEN = 4, SELDOM = 15, AWAY = 120;
    let asked = performance.now(), active = asked, asking = false;
    for (const act of ["pointerdown", "keydown", "scroll", "focus"]) {
      addEventListener(act, () => { active = performance.now(); }, { passive: true });
    }
    const unknown = (turn) => !document.getElementById(turn.id);
    const news = async () => {
      const notices = $("#notices");
      if (!notices || asking || document.hidden) return;
      asking = true;
      asked = performance.now();
      try {
        const last = Math.max(0, ...$$("[data-seq]", turns).map((turn) => Number(turn.dataset.seq)));
        const query = new URLSearchParams({ after: last, newest: notices.dataset.newest });
        const answer = await fetch(`${notices.dataset.news}?${query}`, { headers: { "HX-Request": "true" } });
        if (kept.isLogin(answer.headers.get("HX-Redirect") || answer.url)) { kept.signedOut(); return; }
        if (answer.status >= 500) { kept.unreachable(); return; }
        kept.reachable();
        if (answer.status !== 200 || answer.redirected) return;
        const part = document.createElement("template");
        part.innerHTML = await answer.text();
        const fresh = $$(".turn-live", part.content).filter(unknown);
        const newer = $("#notices", part.content);
        if (!newer) return;
        notices.replaceWith(newer);
        for (const turn of fresh) { turns.append(turn); htmx.process(turn); htmx.trigger(turn, "htmx:load"); }
        if (fresh.length) active = performance.now();
        follow();
      } catch { kept.unreachable(); } finally { asking = false; }
    };
    setInterval(() => {
      const now = performance.now();
      if (now - asked > 1000 * (now - active < 1000 * AWAY ? OFTEN : SELDOM)) news();
    }, 1000);
    document.addEventListener("visibilitychange", () => { active = performance.now(); news(); });
    // What this page posts itself may have come that way already.
    document.addEventListener("htmx:oobBeforeSwap", (event) => {
      if (event.detail.target !== turns) return;
      for (const turn of $$(".turn-live", event.detail.fragment)) if (!unknown(turn)) turn.remove();
    });

    // What the reader folded or unfolded stays so when the turn is drawn anew.
    const folds = new Map();
    turns.addEventListener("click", (event) => {
      const summary = event.target.closest("summary");
      const details = summary?.parentElement;
      if (details?.id) folds.set(details.id, !details.open);
      if (details && !details.open) follows = false;
    });
    const refold = (root) => {
      for (const details of $$("details[id]", root)) {
        if (folds.has(details.id)) details.open = folds.get(details.id);
        // Whoever reads a step when its turn ends goes on reading it.
        else if (details.matches(".work") && $$("details[id]", details).some((each) => folds.get(each.id))) details.open = true;
      }
    };
    // The panel of what is loaded is drawn anew when a turn has ended or loaded something, unless somebody chooses in it.
    const refreshLoads = (event) => {
      const panel = $("#loads");
      if (!panel || panel.contains(document.activeElement)) return;
      const seen = $("[data-loads]", event.target)?.dataset.loads;
      if (event.detail.type === "done" || (event.detail.type === "turn" && seen && seen !== panel.dataset.loads)) {
        htmx.trigger(panel, "refresh");
      }
    };
    document.addEventListener("htmx:afterSwap", (event) => {
      refold(event.detail.target || event.target);
      tick();
      measure();
      follow();
    });
    document.addEventListener("htmx:oobAfterSwap", follow);
    document.addEventListener("htmx:sseMessage", (event) => { refold(event.target); tick(); follow(); refreshLoads(event); });
    document.addEventListener("htmx:sseError", (event) => event.target.classList.add("is-cut-off"));
    document.addEventListener("htmx:sseOpen", (event) => event.target.classList.remove("is-cut-off"));
  }

  // Enter sends, Shift+Enter begins a line; the field grows with its text.
  document.addEventListener("keydown", (event) => {
    const field = event.target;
    if (!field.matches?.("#composer textarea") || !kept.isEnter(event) || event.shiftKey) return;
    event.preventDefault();
    if (field.value.trim()) field.form.requestSubmit();
  });
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (event.target.id === "composer") $("#end")?.scrollIntoView({ block: "end" });
  });

  // What is ticked or typed while a search is under way goes with another search: the answer of the first knows nothing
  // of it, and would take it back. Enter searches, and never saves the form around it.
  document.addEventListener("input", (event) => {
    const picker = event.target.closest(".picker.htmx-request");
    if (picker && !event.target.closest(".pick-search")) htmx.trigger($("[data-pick-search]", picker), "find");
  });
  document.addEventListener("keydown", (event) => {
    if (!kept.isEnter(event) || !event.target.matches?.("[data-pick-search]")) return;
    event.preventDefault();
    htmx.trigger(event.target, "find");
  });

  // Tick or untick every box of a name on the page.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-tick-all]");
    if (!button) return;
    const boxes = $$(`input[type=checkbox][name="${button.dataset.tickAll}"]`);
    const all = boxes.every((box) => box.checked);
    for (const box of boxes) box.checked = !all;
  });

  // A list that is narrowed while somebody types: lines without the words are hidden, folds with such lines are open.
  const narrow = (box) => {
    const root = $(box.dataset.narrow);
    if (!root) return;
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (line) => words.every((word) => line.dataset.words.toLowerCase().includes(word));
    const lines = $$("[data-words]", root);
    for (const line of lines) {
      const parent = line.parentElement.closest("[data-words]");
      line.hidden = !fits(line) && !(parent && root.contains(parent) && fits(parent));
    }
    for (const line of lines) if (line.hidden && $("[data-words]:not([hidden])", line)) line.hidden = false;
    for (const fold of $$("details", root)) {
      fold.dataset.was ??= String(fold.open);
      const own = fold.closest("[data-words]");
      const found = $$("[data-words]:not([hidden])", fold).length > 0;
      fold.open = words.length && !(own && fits(own)) ? found : fold.dataset.was === "true";
      if (!words.length) delete fold.dataset.was;
      if (!own) fold.hidden = words.length > 0 && !found;
    }
    const none = $("[data-narrow-none]", root);
    if (none) none.hidden = lines.some((line) => !line.hidden);
  };
  document.addEventListener("input", (event) => { if (event.target.matches("[data-narrow]")) narrow(event.target); });
  // Enter in there searches on, if there is more than what is shown, and never saves the form around it.
  document.addEventListener("keydown", (event) => {
    if (!kept.isEnter(event) || !event.target.matches?.("[data-narrow]")) return;
    event.preventDefault();
    if (event.target.dataset.narrowMore) $(event.target.dataset.narrowMore)?.click();
  });

  // The reader's time zone, for days that end at midnight there.
  const fillZones = () => {
    const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    for (const field of $$("[data-zone]")) { field.value = zone || "UTC"; delete field.dataset.zone; }
  };
  fillZones();
  document.addEventListener("htmx:afterSwap", fillZones);

  // Asked for the preview of a form that is wrong, the whole page comes with its errors.
  document.addEventListener("htmx:beforeSwap", (event) => {
    const { target, xhr } = event.detail;
    if (target.id !== "impact" || xhr.status !== 422) return;
    const main = document.querySelector("main");
    Object.assign(event.detail, { target: main, selectOverride: "main", swapOverride: "outerHTML show:top" });
  });
  // A preview that came says that the form is right: what was wrong with the one before goes.
  document.addEventListener("htmx:afterSwap", () => {
    if (!document.querySelector("#impact")?.textContent.trim()) return;
    document.querySelectorAll("main .notice.is-error, main .field-error").forEach((each) => each.remove());
    document.querySelectorAll("main .is-invalid").forEach((each) => each.classList.remove("is-invalid"));
  });

  // Copies the text of an element, or the text that the button has itself. Where the clipboard is closed to pages (plain
  // HTTP), the text is selected as well, to be copied by hand.
  const copied = async (button) => {
    const source = button.dataset.copy && $(button.dataset.copy);
    const text = source ? source.textContent : button.dataset.copyText;
    try { await navigator.clipboard.writeText(text); return true; } catch { /* by the older way */ }
    if (source) { getSelection().selectAllChildren(source); return document.execCommand("copy"); }
    const field = Object.assign(document.createElement("textarea"), { value: text, className: "visually-hidden" });
    button.after(field);
    field.select();
    try { return document.execCommand("copy"); } finally { field.remove(); button.focus(); }
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-text]");
    if (!button) return;
    const word = $("[data-copy-word]", button);
    word.dataset.copyWord ||= word.textContent;
    word.textContent = (await copied(button)) ? "Copied" : button.dataset.copy ? "Selected" : "Not copied";
    button.classList.add("is-copied");
    clearTimeout(button.back);
    button.back = setTimeout(() => { word.textContent = word.dataset.copyWord; button.classList.remove("is-copied"); }, 2000);
  });

  // Filters apply as they are changed; without script there is a button.
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-auto]");
    if (form && event.target.matches("select")) form.requestSubmit();
  });

  // The short name of something new follows its name until somebody types another. What was filled in here is not sent:
  // the server makes the same, and another where a row has it already. See capabilities/short_names.py.
  const shortName = (name, separator) => name.normalize("NFKD").replace(/[^\x00-\x7f]|'/g, "").toLowerCase()
    .split(/[^a-z0-9]+/).filter(Boolean).join(separator).slice(0, 63);
  const isMade = (field) => field.dataset.made !== undefined && field.value === field.dataset.made;
  const make = (field) => {
    const source = field.form.elements[field.dataset.shortNameOf];
    if (field.value && !isMade(field)) return;
    field.value = field.dataset.made = shortName(source.value, field.dataset.shortNameSeparator || "-");
  };
  $$("[data-short-name-of]").forEach(make);
  document.addEventListener("input", (event) => {
    for (const field of $$("[data-short-name-of]", event.target.form || undefined)) {
      if (field.dataset.shortNameOf === event.target.name) make(field);
    }
  });
  document.addEventListener("formdata", (event) => {
    for (const field of $$("[data-short-name-of]", event.target)) if (isMade(field)) event.formData.set(field.name, "");
  });
})();
