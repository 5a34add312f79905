// Parses server-sent events.

/** Yields the `data` of each event of a response's body. Comments and other fields are skipped. */
export async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      const lines = (rest + (value ?? '')).split('\n');
      rest = lines.pop();
      for (const line of lines.map((line) => line.replace(/\r$/, ''))) {
        if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
        else if (line === '' && data.length) {
          yield data.join('\n');
          data = [];
        }
      }
      if (done) return;
    }
  } finally {
    // the caller may leave before the end
    reader.cancel().catch(() => {});
  }
}
