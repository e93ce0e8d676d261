// What a person typed is kept: when the login has ended, when it was renewed in another tab, when the server is away, and
// when a text is longer than is taken. Pages work without it, as forms do.
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const LOGIN = "/accounts/login/";
  const DRAFT = "toolhub-draft", HOUR = 3600 * 1000;
  const isDoor = location.pathname.startsWith("/accounts/");

  // -- Enter that ends a composition of an input method sends nothing -----------------------------------------------
  const isEnter = (event) => event.key === "Enter" && !event.isComposing && event.keyCode !== 229;

  // -- One notice of the connection -----------------------------------------------------------------------------------
  let shown = "";
  const tell = (kind, text, link) => {
    if (shown === kind && (!kind || $("#connection"))) return;
    $("#connection")?.remove();
    shown = kind;
    const toasts = $("#toasts");
    if (!kind || !toasts) return;
    const card = $("#toast-template").content.firstElementChild.cloneNode(true);
    card.id = "connection";
    card.dataset.kind = kind;
    $("[data-text]", card).textContent = text;
    $("[data-retry]", card).remove();
    $("[data-dismiss]", card).remove();
    if (link) {
      const way = document.createElement("a");
      way.className = "btn btn-sm btn-primary";
      way.href = link;
      way.textContent = "Sign in";
      way.addEventListener("click", keepPage);
      card.append(way);
    }
    toasts.append(card);
  };
  const signedOut = () => {
    const back = location.pathname + location.search;
    tell("signed-out", "You are signed out. What you typed is kept.", `${LOGIN}?next=${encodeURIComponent(back)}`);
  };
  const unreachable = () => { if (shown !== "signed-out") tell("away", "The server cannot be reached. Trying again."); };
  const reachable = () => tell("", "");
  // Whether an answer sends to the login page, by htmx's header or because fetch followed it there.
  const isLogin = (address) => Boolean(address) && new URL(address, location.href).pathname === LOGIN;

  // -- Drafts: what was typed into a page, until it is there again ---------------------------------------------------
  const isText = (field) => field.name && (field.tagName === "TEXTAREA" || /^(text|search|url|email|number)$/.test(field.type))
    && !/password|secret|token|credential|^csrf/i.test(field.name);
  const formName = (form) => form.id || form.getAttribute("action") || "";
  const typedIn = (form) => [...form.elements].filter((field) => isText(field) && field.value !== field.defaultValue)
    .map((field) => ({ form: formName(form), name: field.name, value: field.value }));
  const read = () => {
    try { return JSON.parse(sessionStorage.getItem(DRAFT)); } catch { return null; }
  };
  const write = (draft) => {
    try { if (draft) sessionStorage.setItem(DRAFT, JSON.stringify(draft)); else sessionStorage.removeItem(DRAFT); } catch { /* full */ }
  };
  const keep = (forms, isInterrupted) => {
    const fields = forms.flatMap(typedIn);
    if (fields.length) write({ path: location.pathname, fields, isInterrupted, at: Date.now() });
  };
  const keepPage = () => keep($$("form[method=post]"), true);
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method === "post" && !form.hasAttribute("hx-post") && !isDoor) keep([form], false);
  });
  const putBack = () => {
    const draft = read();
    if (!draft) return;
    if (isDoor || $("[data-form-expired]")) {
      write({ ...draft, isInterrupted: true });
      const way = $("[data-form-expired]");
      if (way) { way.href = draft.path; way.textContent = "Back to the form"; }
      return;
    }
    if (!draft.isInterrupted || Date.now() - draft.at > HOUR) { write(null); return; }
    if (draft.path !== location.pathname) return;
    for (const each of draft.fields) {
      const form = $$("form").find((one) => formName(one) === each.form);
      const field = form && [...form.elements].find((one) => one.name === each.name && isText(one));
      if (!field) continue;
      field.closest("details")?.setAttribute("open", "");
      field.value = each.value;
      field.dispatchEvent(new Event("input", { bubbles: true }));
    }
    write(null);
  };

  // -- A login that was renewed in another tab: the token of this page's forms is an old one -----------------------------
  const freshToken = async () => {
    const answer = await fetch(location.href);
    if (isLogin(answer.url)) { signedOut(); return ""; }
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const token = JSON.parse(page.body.getAttribute("hx-headers") || "{}")["X-CSRFToken"] || "";
    if (!token) return "";
    document.body.setAttribute("hx-headers", JSON.stringify({ "X-CSRFToken": token }));
    for (const field of $$("input[name=csrfmiddlewaretoken]")) field.value = token;
    return token;
  };
  const renewed = new WeakSet();
  const renew = async (detail) => {
    const { elt, requestConfig: config } = detail;
    renewed.add(elt);
    try {
      const token = await freshToken();
      if (!token) return;
      const values = { ...config.parameters };
      delete values.csrfmiddlewaretoken;
      await htmx.ajax(config.verb.toUpperCase(), config.path, {
        source: elt, target: config.target, values, swap: elt.getAttribute("hx-swap") || undefined,
      });
    } catch { unreachable(); } finally { renewed.delete(elt); }
  };

  // Capturing: before what else is done with an answer.
  document.addEventListener("htmx:beforeOnLoad", (event) => {
    const { xhr, elt } = event.detail;
    if (isLogin(xhr.getResponseHeader("HX-Redirect"))) {
      event.preventDefault();
      signedOut();
    } else if (xhr.status === 403 && xhr.getResponseHeader("X-Form-Expired") && !renewed.has(elt)) {
      event.preventDefault();
      renew(event.detail);
    } else if (xhr.status < 500) {
      reachable();
    }
  }, true);
  // A poll tells by the one notice, and goes on; what a person did tells by a toast of its own.
  const isPoll = (event) => /\bevery\b/.test(event.detail.elt?.getAttribute?.("hx-trigger") || "");
  for (const name of ["htmx:sendError", "htmx:timeout", "htmx:responseError"]) {
    document.addEventListener(name, (event) => {
      const { xhr } = event.detail;
      if (!isPoll(event) || (name === "htmx:responseError" && xhr.status < 500)) return;
      event.stopImmediatePropagation();
      unreachable();
    }, true);
  }

  // -- A text that is too long stays whole, and says so --------------------------------------------------------------------
  const number = new Intl.NumberFormat("en");
  const measure = (field) => {
    const most = Number(field.dataset.most);
    const length = field.value.length > most ? [...field.value].length : 0;
    const text = length > most ? `This has ${number.format(length)} characters, and at most ${number.format(most)} are taken.` : "";
    field.setCustomValidity(text);
    const box = field.closest(".composer-box") || field;
    let note = box.nextElementSibling?.matches?.("[data-too-long]") ? box.nextElementSibling : null;
    if (!text) { note?.remove(); return; }
    if (!note) {
      note = document.createElement("p");
      note.className = "field-error";
      note.dataset.tooLong = "";
      note.setAttribute("role", "alert");
      box.after(note);
    }
    note.textContent = text;
  };
  const loosen = (root = document) => {
    for (const field of $$("textarea[maxlength], input[maxlength]", root)) {
      field.dataset.most = field.getAttribute("maxlength");
      field.removeAttribute("maxlength");
    }
  };
  document.addEventListener("input", (event) => { if (event.target.dataset?.most) measure(event.target); });
  document.addEventListener("htmx:afterSwap", () => loosen());
  loosen();

  window.toolhubKept = { isEnter, isLogin, signedOut, unreachable, reachable };
  putBack();
})();
