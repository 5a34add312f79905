// What answers the requests of this page. `http.js` asks a server; web/demo/local.js asks a model in this browser. The entry (`server.js`, or the demo's
// `start.js`) chooses one with `use` before the page starts.
//
// A backend is an object:
//   hasKey     whether it may ask for an API key: errors then have the status 401, and `setKey(key)` sets the key
//   resumes    whether answers continue without this page: events have ids, and `rest(id, after, signal)` and `cancel(id)` work
//   chooses    whether a request names one of several models; otherwise the only model answers every request
//   place      a sentence that says where conversations are kept
//   models()   resolves to `[{id, status, architecture, parameters, dtype, device}]`; `status` is `ready` or `loading`
//   defaults(model)        resolves to the settings of a request that sets none: `{temperature, top_k, …}`. `thinking` has the names of the choices
//              that the model has, and is missing where the backend does not know them
//   count(text, model)     resolves to the number of tokens of a text, or to `null` where the backend does not count
//   chat(request, signal)  yields `{id, chunk}` of each event of an answer. `request` is the body of POST /v1/chat/completions, `chunk` an event of its
//                          stream. `id` is null where the backend does not resume. When `signal` aborts, the answer ends
//   rest(id, after, signal)  yields the events of the answer `id` after the event `after`
//   cancel(id)             stops an answer that would continue without a connection
//   states     `list(model)` resolves to `[{name, tokens, bytes, created, model}]`
//              `change({action: 'fork', name, from} | {action: 'save', name, messages, from?})`
//              `delete(name, model)`, `content(name, model)` resolves to a Blob, `upload(name, model, file)`
// All functions throw `BackendError`.

/**
 * An error of a backend. `status` and `code` are those of the server's API: a missing state has the status 404 and the code `state_not_found`. `isLost`:
 * the backend cannot be reached, or a stream was cut.
 */
export class BackendError extends Error {
  constructor(message, { status = 0, code = null, type = null, param = null, requestId = null, retryAfter = null, isLost = false } = {}) {
    super(message);
    Object.assign(this, { status, code, type, param, requestId, retryAfter, isLost });
  }
}

/** The backend of this page. */
export let backend = null;

export const use = (chosen) => (backend = chosen);
