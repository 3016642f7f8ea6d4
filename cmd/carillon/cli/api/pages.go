package api

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"strconv"
)

// maxPage is the largest page of the API.
const maxPage = 1000

// Items returns the items of a list, page after page, so that memory does not grow with the list. most limits their number; 0 is no
// limit. A list without pages is one page.
func (c *Client) Items(ctx context.Context, path string, query url.Values, most int) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		query = maps.Clone(query)
		if query == nil {
			query = url.Values{}
		}
		for got := 0; most == 0 || got < most; {
			query.Set("limit", strconv.Itoa(pageSize(most, got)))
			page, err := c.page(ctx, Request{Path: path, Query: query})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
				if got++; most > 0 && got == most {
					return
				}
			}
			if page.Next == nil {
				return
			}
			query.Set("cursor", *page.Next)
		}
	}
}

func pageSize(most, got int) int {
	if most == 0 {
		return maxPage
	}
	return min(most-got, maxPage)
}

// page is one page of a list.
type page struct {
	Items []json.RawMessage `json:"items"`
	Next  *string           `json:"next_cursor"`
}

func (c *Client) page(ctx context.Context, r Request) (page, error) {
	answer, err := c.Do(ctx, r)
	if err != nil {
		return page{}, err
	}
	var p page
	if err := json.Unmarshal(answer.Body, &p); err != nil {
		return page{}, fmt.Errorf("the answer to GET %s is no list: %w", r.Path, err)
	}
	return p, nil
}
