// Package api is a small client of Carillon's HTTP API for the command line. It sends and returns raw JSON, so that payloads keep every
// byte and numbers every digit. It repeats a request that the server refused with 429 or 503, or that never reached the server, until
// the client's patience ends. It keeps no state between requests.
package api
