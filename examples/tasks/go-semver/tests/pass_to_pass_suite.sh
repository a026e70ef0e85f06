PATH=$PATH:/usr/local/go/bin
go test -skip TestLeadingZeros .
