// Package cli is the client commands of carillon: a file for each noun. They speak to the HTTP API through package api, and share flags,
// output, questions and errors through package command. They import nothing of the server.
package cli
