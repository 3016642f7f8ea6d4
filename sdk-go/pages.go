package carillon

import (
	"context"
	"iter"
	"maps"
	"net/http"
	"net/url"
)

// pages iterates over a list and requests each page when the loop reaches it. An error comes once, with a zero T, and ends the loop.
func pages[T any](ctx context.Context, c *Client, path string, query url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		query := maps.Clone(query)
		for {
			page, err := read[struct {
				Items      []T     `json:"items"`
				NextCursor *string `json:"next_cursor"`
			}](ctx, c, &call{method: http.MethodGet, path: path, query: query})
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.NextCursor == nil || *page.NextCursor == "" {
				return
			}
			query.Set("cursor", *page.NextCursor)
		}
	}
}
