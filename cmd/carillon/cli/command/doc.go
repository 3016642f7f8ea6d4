// Package command is what the client's commands have in common: their flags, the server they talk to, how they print, ask and fail.
//
// A command is a Spec. Its fields are flags that become members of the request's body or parameters of its query, so that an error of
// the server can name the flag. Run gets a Session: the client of the API, the printer, and the arguments.
package command
