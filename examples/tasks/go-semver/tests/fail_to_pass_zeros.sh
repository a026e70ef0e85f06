PATH=$PATH:/usr/local/go/bin
go test -run TestLeadingZeros .
