// Starts the page on the server that it came from.

import * as http from './http.js';
import { start } from './main.js';

start(http);
