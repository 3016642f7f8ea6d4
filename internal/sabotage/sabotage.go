// Package sabotage is where the fault lab gets a hold on the program. In a program built without tags every function here
// does nothing, and is compiled to nothing. With the tag fault a process can be made to end at a named point, beside a
// commit, and endpoints may be on this machine; with the tag mutant one of the deliberate bugs that the lab must find can be
// chosen.
package sabotage
