/** The address of the file, with a bundler that turns imports of such files into addresses. */
declare const address: string;
export default address;
