"""Cases of the domain com.microsoft."""


def record(recorder):
    pass
