// Package operations runs the long work of tenants in steps.
//
// A package registers a kind of work with its [Step]. [Operations.Begin] records an operation in the transaction of the request. Any process
// then runs it step by step. Each step is a short transaction, which commits its changes together with the start of the next step, so no
// part is done twice. A crash between two steps loses nothing: another process continues from the last commit.
//
// Table: operation. Lock: an advisory lock of the operation, which the process that runs a step holds.
package operations
