/** The files of the tiny model: `await wingbeat.load(files)`. */
export declare const files: { name: string; url: string }[];
export default files;
