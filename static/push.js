// Turns notifications on in this browser: asks for permission, and sends what the browser gives with the form.
(() => {
  const form = document.querySelector("[data-push-form]");
  if (!form) return;
  const button = form.querySelector("[data-push-on]");
  const place = form.querySelector("[data-push-error]");
  const say = (text) => { place.textContent = text; place.hidden = false; };
  if (!("serviceWorker" in navigator) || !("PushManager" in window) || !("Notification" in window)) {
    button.disabled = true;
    say("This browser cannot show notifications of this page. They need HTTPS, or http://localhost on your own machine.");
    return;
  }
  const bytes = (text) => {
    const plain = atob(text.replace(/-/g, "+").replace(/_/g, "/").padEnd(Math.ceil(text.length / 4) * 4, "="));
    return Uint8Array.from(plain, (character) => character.charCodeAt(0));
  };
  const subscribe = async () => {
    if ((await Notification.requestPermission()) !== "granted") {
      say("The browser does not allow notifications of this site. Allow them in its settings, and try again.");
      return;
    }
    // One worker for each organisation of this site: a subscription holds for one organisation's key.
    await navigator.serviceWorker.register("/push-worker.js", { scope: form.dataset.pushScope });
    const worker = await navigator.serviceWorker.ready;
    const key = bytes(form.dataset.pushForm);
    const { endpoint, keys } = (await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: key })).toJSON();
    Object.assign(form.elements.endpoint, { value: endpoint });
    Object.assign(form.elements.p256dh, { value: keys.p256dh });
    Object.assign(form.elements.auth, { value: keys.auth });
    form.submit();
  };
  button.addEventListener("click", async (event) => {
    event.preventDefault();
    button.disabled = true;
    place.hidden = true;
    try {
      await subscribe();
    } catch (error) {
      say(`The browser could not turn notifications on (${error.name}). Its push service may be out of reach. Try again.`);
    } finally {
      button.disabled = false;
    }
  });
})();
