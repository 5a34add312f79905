/** The addresses of the files of the tiny model: `await wingbeat.load(files)`. */
export declare const files: string[];
export default files;
