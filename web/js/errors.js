// Errors of the package. Each has `kind`, `field` (the wrong option or field of a request, or null) and `hint` (what to do, or null).

/** The base of all errors. */
export class WingbeatError extends Error {
  // A text, because bundlers that minify rename the class.
  name = 'WingbeatError';

  constructor(message, { kind = 'input', field = null, hint = null, cause, retry = null } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.kind = kind;
    this.field = field;
    this.hint = hint;
    /** After a lost device: true if the same request can be sent again, otherwise false. Null for other errors. */
    this.retry = retry;
  }
}

/** A wrong option or request. */
export class InputError extends WingbeatError {
  name = 'InputError';
}
/** A file that is missing, damaged, not reachable or not supported. */
export class FileError extends WingbeatError {
  name = 'FileError';
}
/** A GPU that is missing, was lost or computes wrongly. */
export class DeviceError extends WingbeatError {
  name = 'DeviceError';
}
/** Too little memory or storage. */
export class MemoryError extends WingbeatError {
  name = 'MemoryError';
}
/** Too many requests wait. */
export class BusyError extends WingbeatError {
  name = 'BusyError';
}
/** The caller stopped the work. `name` is AbortError, as in the platform's own errors. */
export class AbortError extends WingbeatError {
  name = 'AbortError';

  constructor(message = 'stopped by the caller', fields = {}) {
    super(message, { kind: 'interrupted', ...fields });
  }
}

/** Returns the error for an aborted signal: an AbortError, or the caller's own reason, such as the TimeoutError of `AbortSignal.timeout`. */
export const stopped = ({ reason }) => (!reason || reason.name === 'AbortError' ? new AbortError(undefined, { cause: reason }) : reason);

const CLASSES = {
  usage: InputError,
  input: InputError,
  file: FileError,
  model: FileError,
  device: DeviceError,
  memory: MemoryError,
  busy: BusyError,
  interrupted: AbortError,
};

/** Returns the fields of an error, which can be sent to another thread. */
export const packed = (error) => ({
  message: error?.message ?? String(error),
  kind: error?.kind ?? (error?.name === 'AbortError' ? 'interrupted' : 'internal'),
  field: error?.field ?? null,
  hint: error?.hint ?? null,
  retry: error?.retry ?? null,
  stack: error?.kind ? null : (error?.stack ?? null),
});

/** Converts fields that `packed` returned, or an error of the WebAssembly module, to an error of this package. */
export const unpacked = (fields) => {
  if (fields instanceof WingbeatError) return fields;
  const { message, kind, stack } = fields;
  const Class = CLASSES[kind] ?? WingbeatError;
  const error = new Class(message, { ...fields, kind: kind ?? 'internal' });
  if (stack) error.stack = stack;
  return error;
};
