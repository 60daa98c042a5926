// Package top is the screen of "bailey box top": the sandboxes that stay, what
// each uses and what it was denied, and keys to look into one, to allow what it
// was denied, and to end it.
//
// What is shown and what a key does are a model, which knows no terminal: keys
// and news go in, lines and actions come out. Around it a loop waits for keys,
// for the keeper, and for signals. Whatever ends the loop, the terminal is given
// back as it was.
//
// Everything a sandbox has a say in, such as names of files and hosts, is made
// harmless before it is shown.
package top
