/** Where a model comes from: an address, `hf:OWNER/REPO[/FILE][@REVISION]`, files, a folder, bytes, or in Node a path. */
export type Source =
  | string
  | URL
  | Blob
  | ArrayBuffer
  | ArrayBufferView
  | FileSystemDirectoryHandle
  | FileSystemFileHandle
  | Iterable<File | string | URL | { name: string; bytes: Uint8Array } | { name: string; blob: Blob } | { name: string; url: string; size?: number; sha256?: string }>;

export interface Progress {
  /**
   * `check`: cases of the test of the GPU; `wait`: another tab loads the same model; `download`: bytes from the network; `weights`: bytes that are quantised and
   * on the device; `kernels`: compiled kernels.
   */
  stage: 'check' | 'wait' | 'download' | 'weights' | 'kernels';
  loaded: number;
  total: number;
  /** For `download`: bytes per second, and the name of the file. */
  rate?: number;
  file?: string;
}

export interface LoadOptions {
  onProgress?: (progress: Progress) => void;
  signal?: AbortSignal;
  /** `auto` (the default), `gpu` or `cpu`. `auto` takes a hardware GPU, or else the CPU; `gpu` also takes a software adapter. */
  device?: 'auto' | 'gpu' | 'cpu' | (string & {});
  /** The format to which matrices are quantised while they load: `i8`, `i4`, `nf4`, `i8rc`, `q8_0`, `q6_k`, `q4_k` and other block types of GGUF, `i4-mixed`, with exceptions such as `i4,head=i8`. */
  quant?: string;
  /** The format of other matrices: `auto`, `f16` or `f32`. */
  dtype?: string;
  state_dtype?: 'f16' | 'f32';
  cache_dtype?: 'f16' | 'f32';
  /** The activations that are multiplied with quantised weights: `auto`, `i8` (a GPU rounds them to 8 bits in prefill) or `float`. In a page, `auto` rounds on the CPU only. */
  activations?: 'auto' | 'i8' | 'float';
  /** The maximum number of tokens in prompt and answer together, for a model with attention. */
  context?: number;
  /** The number of prompt tokens per step. */
  chunk?: number;
  /** How many texts run at once. Default 2. */
  slots?: number;
  /** The maximum number of tokens of an answer, if its request sets none. */
  max_tokens?: number;
  /** `false` trusts the GPU without comparing it with the CPU. */
  selfTest?: boolean;
  /** If `true`, a text has the same bits whichever other texts run at the same time. */
  deterministic?: boolean;
  /** The chat format. The model's own by default. */
  format?: string;
  prefix_cache?: boolean;
  /** The method that guesses the next tokens. Guesses never change the text. Off by default. */
  speculate?: 'off' | 'auto' | 'ngram' | 'forced';
  /** The number of guesses per step, 1 to 32. By default, the engine chooses it by measured times. */
  draft_tokens?: number;
  /** `false` keeps nothing in the storage of the browser. */
  cache?: boolean;
  /** `true` asks the servers whether files in the cache have changed. By default, files in the cache need no request. */
  revalidate?: boolean;
  /** The size of the pieces in which files are cached, in bytes. Default 16 MiB. */
  pieceBytes?: number;
  /** The SHA-256 of the model's file, or of each file by name. A downloaded or cached file with another hash is an error. */
  integrity?: string | Record<string, string>;
  /** Headers of all requests, such as `authorization`. */
  headers?: Record<string, string>;
  /** Names of small files to look for beside an address. */
  sideFiles?: string[];
  /** The address of the hub of `hf:` sources. */
  endpoint?: string;
  /** Kernels for GPUs (`groups`) or for software (`lanes`). */
  class?: 'groups' | 'lanes';
  /**
   * Addresses of `wingbeat_bg.wasm`, `world.vocab` and `worker.js`, if a bundler moved them. With `worker: false`, models run in the thread that
   * loads them.
   */
  wasm?: string | URL;
  world?: string | URL;
  worker?: string | URL | false;
  log?: 'off' | 'error' | 'warn' | 'info' | 'debug';
}

export interface Message {
  role: 'system' | 'user' | 'assistant' | 'tool' | 'developer' | 'function';
  content?: string | { type: 'text'; text: string }[] | null;
  name?: string;
  tool_calls?: { id?: string; type?: 'function'; function: { name: string; arguments: string } }[];
  /** OpenAI's former form of one call. */
  function_call?: { name: string; arguments: string };
  tool_call_id?: string;
}

/** Settings of a request, as in the server's JSON. */
export interface Settings {
  max_tokens?: number;
  max_completion_tokens?: number;
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  repeat_penalty?: number;
  seed?: number;
  stop?: string | string[];
  n?: number;
  logprobs?: boolean | number;
  top_logprobs?: number;
  logit_bias?: Record<string, number>;
  response_format?: { type: 'text' } | { type: 'json_object' } | { type: 'json_schema'; json_schema: { name?: string; schema: object } };
  json_schema?: object;
  grammar?: string;
  regex?: string;
  choice?: string[];
  /** The minimum number of tokens of the answer. Before, neither a stop token nor a stop text ends the answer. */
  min_tokens?: number;
  /** Texts that never occur in the answer, however tokens spell them. */
  bad_words?: string[];
  /** The answer has only these tokens. */
  allowed_token_ids?: number[];
  tools?: object[];
  tool_choice?: 'auto' | 'none' | 'required' | string | object;
  thinking?: string;
  reasoning_effort?: 'none' | 'minimal' | 'low' | 'medium' | 'high' | 'xhigh';
  format?: string;
  /** The name of the state from which the prompt continues. The state after the text is kept under the name in `save_state`. */
  state?: string;
  save_state?: string;
  echo?: boolean;
  return_progress?: boolean;
  no_cache?: boolean;
  priority?: number;
  /** The method that guesses the next tokens. Guesses never change the text. */
  speculate?: 'off' | 'auto' | 'ngram' | 'forced';
  draft_tokens?: number;
  [setting: string]: unknown;
}

export interface ChatRequest extends Settings {
  messages: Message[];
}

export interface GenerateRequest extends Settings {
  prompt?: string;
  tokens?: number[];
}

export interface Token {
  id: number;
  token: string;
  bytes: number[];
  logprob: number;
  top_logprobs?: Token[];
}

export interface Done {
  type: 'done';
  index: number;
  text: string;
  thought: string | null;
  calls: { name: string; arguments: string }[];
  tokens: number[];
  finish_reason: 'stop' | 'length' | 'tool_calls';
  complete: boolean | null;
  seed: number;
  state: { name: string; n_tokens: number; bytes: number } | { error: string } | null;
  usage: { prompt_tokens: number; cached_tokens: number; completion_tokens: number; reasoning_tokens: number };
  /** Durations in milliseconds, and the numbers of guessed tokens that were checked (`drafted`) and that were right (`accepted`). */
  timings: { queue_ms: number; prefill_ms: number; decode_ms: number; drafted: number; accepted: number };
}

export type Event =
  | { type: 'started'; prompt_tokens: number; cached_tokens: number }
  | { type: 'progress'; processed_tokens: number; prompt_tokens: number; cached_tokens: number }
  | { type: 'prompt'; first: number | null; logprobs: Token[] }
  | { type: 'text'; index: number; text: string }
  | { type: 'thought'; index: number; text: string }
  | { type: 'call'; index: number; call: number; name: string }
  | { type: 'arguments'; index: number; call: number; text: string }
  | ({ type: 'logprobs'; index: number } & Token)
  | { type: 'vector'; index: number; vector: number[] }
  | { type: 'score'; index: number; logit: number }
  | Done;

/** The events of a request. Leaving a loop over the events cancels the request. */
export declare class Answer implements AsyncIterable<Event> {
  [Symbol.asyncIterator](): AsyncGenerator<Event, void, void>;
  cancel(): void;
  all(): Promise<Event[]>;
  /** The last event of the first continuation, or null if the request was cancelled before. */
  done(): Promise<Done | null>;
  /** The text of the first continuation. */
  text(): Promise<string>;
}

export interface StateInfo {
  name: string;
  n_tokens: number;
  bytes: number;
}

export interface States {
  list(): Promise<StateInfo[]>;
  /** The file of a state. The program, the server and other pages can read it. */
  export(name: string): Promise<Blob>;
  load(name: string, file: Blob | ArrayBuffer | Uint8Array | FileSystemFileHandle | string | URL): Promise<StateInfo>;
  /** `file`: a file handle, or in Node a path. */
  save(name: string, file: FileSystemFileHandle | string): Promise<void>;
  fork(name: string, to: string): Promise<StateInfo>;
  delete(name: string): Promise<void>;
}

export interface ModelInfo {
  name: string;
  kind: string;
  architecture: string;
  n_layer: number;
  n_embd: number;
  n_vocab: number;
  n_params: number;
  context: number | null;
  dtype: string;
  weight_bytes: number;
  device_bytes: number;
  state_bytes: number;
  weights_hash: string;
  numerics: string;
  slots: number;
  load_ms: number;
  notes: string[];
  vocab_hint: string | null;
  device: { id: string; name: string; backend: string; kind: string; driver: string; why: string };
}

export interface RequestOptions {
  /** Stops the request. The error is an AbortError, or the reason of the signal, such as the TimeoutError of `AbortSignal.timeout`. */
  signal?: AbortSignal;
}

export declare class Model {
  readonly info: ModelInfo;
  readonly states: States;
  chat(request: ChatRequest, options?: RequestOptions): Answer;
  generate(request: string | GenerateRequest, options?: RequestOptions): Answer;
  embed(input: string, options?: RequestOptions & Settings): Promise<Float32Array>;
  embed(input: string[], options?: RequestOptions & Settings): Promise<Float32Array[]>;
  rerank(query: string, documents: string[], options?: RequestOptions): Promise<{ logit: number; score: number }[]>;
  /** The log-probability of each token of a text after the first token, and their sum. */
  score(text: string, options?: RequestOptions): Promise<{ tokens: Token[]; sum: number }>;
  tokenize(text: string): Promise<number[]>;
  detokenize(ids: Iterable<number>): Promise<string>;
  stats(): Promise<{ slots: number; free_slots: number; waiting: number; cached: number; device_bytes: number; wasm_bytes: number }>;
  drain(): Promise<void>;
  free(): Promise<void>;
}

/** The version of the package. */
export declare const version: string;

/** Loads a model. */
export declare function load(source: Source, options?: LoadOptions): Promise<Model>;

export interface Check {
  ok: boolean;
  /** The result in words, for users. */
  verdict: string;
  hint: string | null;
  gpu: {
    vendor?: string;
    architecture?: string;
    device?: string;
    description?: string;
    isFallback: boolean;
    features: string[];
    limits: Record<string, number>;
  } | null;
  /** Bytes of the device's memory, or null if the browser does not report it. */
  memory: number | null;
  storage: { usage?: number; quota?: number } | null;
}

/** Returns what this browser can run. `bytes` is the size of a model that should fit. */
export declare function check(options?: { bytes?: number }): Promise<Check>;

export declare const cache: {
  list(): Promise<{ url: string; size: number; bytes: number; isComplete: boolean; at: number }[]>;
  /** Removes the file of an address, or all files below it; without an address, all. */
  remove(url?: string): Promise<number>;
  usage(): Promise<{ usage: number; quota: number; isPersistent: boolean }>;
  persist(): Promise<boolean>;
};

export declare class WingbeatError extends Error {
  kind: 'usage' | 'input' | 'file' | 'model' | 'device' | 'memory' | 'busy' | 'interrupted' | 'internal';
  /** The wrong option or field of a request. */
  field: string | null;
  /** What to do. */
  hint: string | null;
  /** After a lost device: true if the same request can be sent again, otherwise false. Null for other errors. */
  retry: boolean | null;
}
export declare class InputError extends WingbeatError {}
export declare class FileError extends WingbeatError {}
export declare class DeviceError extends WingbeatError {}
export declare class MemoryError extends WingbeatError {}
export declare class BusyError extends WingbeatError {}
export declare class AbortError extends WingbeatError {}
