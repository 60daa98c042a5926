/** Directories as tar archives, without holding more than a piece in memory. */
/**
 * Yields a directory as a tar archive. Whoever `exclude` names, by the path
 * relative to the directory, is left out with all that is below.
 */
export declare function pack(root: string, exclude?: (path: string) => boolean): AsyncGenerator<Uint8Array>;
