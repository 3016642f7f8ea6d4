module github.com/carillonhq/carillon/sdk-go/carillontest

go 1.26.8

require (
	github.com/carillonhq/carillon v0.0.0
	github.com/carillonhq/carillon/sdk-go v0.0.0
	go.uber.org/goleak v1.3.0
)

require github.com/teambition/rrule-go v1.8.2 // indirect

replace (
	github.com/carillonhq/carillon => ../..
	github.com/carillonhq/carillon/sdk-go => ..
)
