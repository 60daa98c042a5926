/** Directories as tar archives, without holding more than a piece in memory. */
import { createReadStream } from "node:fs";
import { lstat, readdir, readlink } from "node:fs/promises";
import { join } from "node:path";
const block = 512;
/**
 * Yields a directory as a tar archive. Whoever `exclude` names, by the path
 * relative to the directory, is left out with all that is below.
 */
export async function* pack(root, exclude = () => false) {
    if (!(await lstat(root)).isDirectory())
        throw new TypeError(`${root} is not a directory`);
    yield* packDirectory(root, "", exclude);
    yield Buffer.alloc(2 * block);
}
async function* packDirectory(root, dir, exclude) {
    for (const entry of (await readdir(join(root, dir))).sort()) {
        const name = dir ? `${dir}/${entry}` : entry;
        if (exclude(name))
            continue;
        const stat = await lstat(join(root, name));
        if (stat.isDirectory()) {
            yield* header(`${name}/`, stat, "5", 0);
            yield* packDirectory(root, name, exclude);
        }
        else if (stat.isSymbolicLink()) {
            yield* header(name, stat, "2", 0, await readlink(join(root, name)));
        }
        else if (stat.isFile()) {
            yield* header(name, stat, "0", stat.size);
            yield* content(join(root, name), stat.size);
        }
        // Sockets, pipes and devices mean nothing elsewhere.
    }
}
async function* content(path, size) {
    if (size === 0)
        return;
    let sent = 0;
    // A file that grows meanwhile is sent as long as it was, and one that shrinks
    // cannot be: the archive has its length already.
    for await (const piece of createReadStream(path, { end: size - 1 })) {
        sent += piece.length;
        yield piece;
    }
    if (sent !== size)
        throw new Error(`${path} became shorter while it was read`);
    yield Buffer.alloc((block - (size % block)) % block);
}
/** The blocks before a file's content: what ustar cannot say goes before, as pax has it. */
function* header(name, stat, type, size, target = "") {
    const more = { mtime: (stat.mtimeMs / 1000).toFixed(9) };
    if (Buffer.byteLength(name) > 100 || !isAscii(name))
        more["path"] = name;
    if (Buffer.byteLength(target) > 100 || !isAscii(target))
        more["linkpath"] = target;
    if (size > 0o77777777777)
        more["size"] = String(size);
    const records = Buffer.concat(Object.entries(more).map(([key, value]) => record(key, value)));
    yield ustar("PaxHeader", stat, "x", records.length, "");
    yield records;
    yield Buffer.alloc((block - (records.length % block)) % block);
    yield ustar(name, stat, type, Math.min(size, 0o77777777777), target);
}
function isAscii(text) {
    return /^[\x00-\x7f]*$/.test(text);
}
/** One record of pax: its own length, which counts itself, a key and a value. */
function record(key, value) {
    const rest = Buffer.from(` ${key}=${value}\n`);
    let length = rest.length;
    while (String(length).length + rest.length !== length)
        length = String(length).length + rest.length;
    return Buffer.concat([Buffer.from(String(length)), rest]);
}
function ustar(name, stat, type, size, target) {
    const b = Buffer.alloc(block);
    const octal = (value, at, length) => b.write(value.toString(8).padStart(length - 1, "0"), at, "latin1");
    b.write(name, 0, 100, "latin1");
    octal(stat.mode & 0o7777, 100, 8);
    octal(0, 108, 8); // who owns a file here means nothing there
    octal(0, 116, 8);
    octal(size, 124, 12);
    octal(Math.max(0, Math.floor(stat.mtimeMs / 1000)), 136, 12);
    b.write("        ", 148, "latin1");
    b.write(type, 156, "latin1");
    b.write(target, 157, 100, "latin1");
    b.write("ustar\0" + "00", 257, "latin1");
    octal(b.reduce((sum, byte) => sum + byte, 0), 148, 7);
    b[154] = 0;
    return b;
}
