// Subscribes this browser to notifications, on the page of the account.
"use strict";

const subscribing = byID("subscribe");

async function showSubscription() {
  const subscription = await (await navigator.serviceWorker.ready).pushManager.getSubscription();
  const device = subscription && (await deviceOf(JSON.stringify(subscription)));
  if (device) {
    device.querySelector(".this").hidden = false;
  }
  subscribing.hidden = Boolean(device);
}

// deviceOf returns the element of the device with a subscription. The page has its hash alone.
async function deviceOf(token) {
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(token)));
  const hash = Array.from(sum, (b) => b.toString(16).padStart(2, "0")).join("");
  return document.querySelector(`.devices li[data-token="${hash}"]:not(.inactive)`);
}

async function subscribe() {
  if ((await Notification.requestPermission()) !== "granted") {
    showProblem(subscribing, subscribing.dataset.forbidden);
    return;
  }
  try {
    const { pushManager } = await navigator.serviceWorker.ready;
    await (await pushManager.getSubscription())?.unsubscribe(); // it may be another account's
    const subscription = await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: subscribing.dataset.key });
    subscribing.elements.push_token.value = JSON.stringify(subscription);
    subscribing.submit();
  } catch (error) {
    showProblem(subscribing, subscribing.dataset.impossible + " " + error.message);
  }
}

if (navigator.serviceWorker && window.PushManager && window.Notification) {
  byID("notifications-need").hidden = true;
  showSubscription();
  subscribing.addEventListener("submit", (event) => {
    event.preventDefault();
    subscribing.querySelector(".problem")?.remove();
    subscribe();
  });
}
