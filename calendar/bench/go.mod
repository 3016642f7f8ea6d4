module github.com/carillonhq/carillon/calendar/bench

go 1.26.8

require (
	github.com/adhocore/gronx v1.20.4
	github.com/carillonhq/carillon v0.0.0
	github.com/gorhill/cronexpr v0.0.0-20180427100037-88b0669f7d75
	github.com/hashicorp/cronexpr v1.1.3
	github.com/netresearch/go-cron v0.9.1
	github.com/robfig/cron/v3 v3.0.1
)

require (
	github.com/stretchr/testify v1.12.1 // indirect
	github.com/teambition/rrule-go v1.8.2 // indirect
)

replace github.com/carillonhq/carillon => ../..
