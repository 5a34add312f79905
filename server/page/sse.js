// Parses server-sent events.

/** Yields `{id, data}` of each event of a response's body. `id` is `null` for an event without one. Comments and other fields are skipped. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data = [];
  let id = null;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      const lines = (rest + (value ?? '')).split('\n');
      rest = lines.pop();
      for (const line of lines.map((line) => line.replace(/\r$/, ''))) {
        if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
        else if (line.startsWith('id:')) id = line.slice(3).trim();
        else if (line === '') {
          if (data.length) yield { id, data: data.join('\n') };
          data = [];
          id = null;
        }
      }
      if (done) return;
    }
  } finally {
    // the caller may stop reading before the end of the stream
    reader.cancel().catch(() => {});
  }
}
