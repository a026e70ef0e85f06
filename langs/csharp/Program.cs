namespace app
{
    static class Program
    {
        static void Main()
        {
            Checker.Test(true);
        }
    }
}
