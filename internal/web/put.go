package web

import "net/http"

// PutStatus returns the status of a PUT that was carried out: 201 if it made something, else 200.
func PutStatus(made bool) int {
	if made {
		return http.StatusCreated
	}
	return http.StatusOK
}
