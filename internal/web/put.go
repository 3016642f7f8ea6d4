package web

import "net/http"

// PutStatus returns the status of a successful PUT: 201 if it created something, otherwise 200.
func PutStatus(made bool) int {
	if made {
		return http.StatusCreated
	}
	return http.StatusOK
}
