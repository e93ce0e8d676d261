// Says on the page what a browser says of a passkey that did not work.
(() => {
  const SENTENCES = {
    NotAllowedError: "The browser gave no passkey: it was cancelled, or there is none for this site.",
    InvalidStateError: "This passkey is there already.",
    SecurityError: "Passkeys need HTTPS, or http://localhost on your own machine.",
  };
  document.addEventListener("allauth.error", (event) => {
    event.preventDefault();
    const place = document.querySelector("[data-passkey-error]");
    place.textContent = SENTENCES[event.detail.exception.name] || "The passkey did not work. Try again.";
    place.hidden = false;
  });
})();
