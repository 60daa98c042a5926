// Package archive turns trees into tar archives and back. The same tree has always
// the same archive, byte for byte, on every machine and with every version of
// Bailey: its hash is the name by which a layer is known.
package archive
