/** A server that a program starts for itself, and that ends with it. */
/**
 * The address of this program's own server, which is started if need be. It ends
 * when its standard input does: with its last user, or with this program.
 */
export declare function acquire(): Promise<string>;
/** Ends the server and everything in it if nobody else uses it, and waits for that. */
export declare function release(): Promise<void>;
