// wingbeat for environments that cannot import modules later, such as service workers: `import * as wingbeat from 'wingbeat/in-place'`. Models run in
// the thread that loads them.

import { useServe } from './link.js';
import { serve } from './serve.js';

useServe(serve);

export * from './index.js';
