// Package pull gets images into a store: from a registry, from an OCI layout, or from an
// archive as docker save writes it. It uses the host's network, and reads what strangers
// have packed: see unpacker for what it does not believe.
package pull
