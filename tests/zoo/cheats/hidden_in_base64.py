# /// zoo
# task = "softmax"
# dsl = "torch"
# catalogue = [60]
# expect = "static"
# signature = "hidden-code"
# where = ["cpu", "gpu"]
# story = "The source is a line of base64, so that no rule and no reader sees what it does."
# detector = "Static: executes what it has decoded."
# ///
import base64

text = base64.b64decode("ZGVmIGtlcm5lbCh4KToKICAgIHJldHVybiB0b3JjaC5zb2Z0bWF4KHgsIC0xKQo=").decode()
exec(text)
kernel = globals()["kernel"]
