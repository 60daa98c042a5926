// Command sandboxbench measures the runtimes that carry sandboxes, by themselves and
// through the command bailey. scripts/bench/sandbox-bench.sh builds and calls it; package
// walls says what it reports.
//
// It is also its own probe inside, and calls runtimes from a process of its own for each
// launch, in namespaces in which Bailey's bundle is furnished and nothing can be left.
package main
