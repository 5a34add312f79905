// The script of the worker in which the models run.

import { serve } from './serve.js';

serve(globalThis);
