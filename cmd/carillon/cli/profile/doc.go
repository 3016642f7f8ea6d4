// Package profile keeps the servers that the user has signed in to: config.json in the user's configuration folder, readable by the
// user only. The secrets are in the keychain of the operating system. Where there is none, they are in the same file.
package profile
